"""Executes an agent of an agents file in memory, with a scripted model and a person played by the test."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from app.agents.catalog import Catalog, load_catalog
from app.agents.resolve import resolve
from app.bootstrap.agents import known_backends
from app.domain.deps import Deps
from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import Json, JsonObject
from app.domain.structs import replace
from app.llm.specs import specs_from_environment
from app.runtime.agent import AgentLookup, UnknownAgentVersion
from app.testing.agent_run import AgentRun
from app.testing.scripts import ScriptedAnswers, ScriptedModels, Turn, agent_named
from app.tools.functions.startup import opened
from app.tools.searchable_tools import with_tool_search

_KEYS_IN_TESTS = {"OPENAI_API_KEY": "unused", "ANTHROPIC_API_KEY": "unused"}
"""Agents may use the models that need these keys. The scripted model replaces them."""
_STARTUP_FUNCTION_SECONDS = 60.0


@asynccontextmanager
async def run_agent(
    agents_file: str | Path,
    *,
    script: Sequence[Turn],
    agent: str | None = None,
    message: str = "Go.",
    metadata: JsonObject | None = None,
    context: JsonObject | None = None,
    deps: Mapping[str, object] | None = None,
    memories: Mapping[str, Json] | None = None,
) -> AsyncIterator[AgentRun]:
    """Execute an agent until its run waits or is done, and yield the run.

    `script` has one item for each answer of the model. `agent` may be left out when the file has only
    one. `metadata` is what a client would send with the start, `context` what a server would. With `deps` the
    tools get these resources, and functions with `@startup` are not called. `memories` is what an agent with
    the plugin `memory` knows from earlier runs. At the end of the block every turn
    of the script must have been used.

    Runs are in memory: no server, no database, no network. Tools, plugins, approval rules and hand-offs
    are the real ones. Some things need a server. So calls of `background` tools run in the foreground, and
    delegates are not started: answer their calls with `respond`. Approver rules and the expiry of tickets are
    not checked.
    """
    catalog = _catalog(Path(agents_file))
    answers = ScriptedAnswers(script)
    spec = catalog.agents[agent_named(tuple(catalog.agents), agent)]
    async with AsyncExitStack() as stack:
        if deps is None:
            resources = await stack.enter_async_context(
                opened(catalog.startup, timeout=_STARTUP_FUNCTION_SECONDS)
            )
        else:
            resources = Deps(deps)
        agents = _Agents(catalog, ScriptedModels(answers), resources)
        run = AgentRun(spec, agents, answers, metadata or {}, context or {}, memories or {})
        await run.send(message)
        yield run
    if answers.unused_turns:
        raise AssertionError(
            f"the run used all but {answers.unused_turns} turns of the script; it is {run.status} now"
        )


class _Agents:
    """The agents of one file, each with the scripted model."""

    def __init__(self, catalog: Catalog, models: ScriptedModels, deps: Deps) -> None:
        self._catalog = catalog
        self._models = models
        self._deps = deps

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> AgentLookup:
        spec = self._catalog.agents.get(agent_id)
        if spec is None:
            return UnknownAgentVersion(f"there is no agent {agent_id!r}")
        if spec.endpoint is not None:
            return UnknownAgentVersion(f"agent {agent_id!r} lives behind an endpoint")
        agent = resolve(spec, self._catalog, self._models, self._deps)
        return agent if isinstance(agent, UnknownAgentVersion) else with_tool_search(agent)


def _catalog(file: Path) -> Catalog:
    catalog = load_catalog(
        file, default_models=specs_from_environment(_KEYS_IN_TESTS), endpoints=known_backends()
    )
    # In the foreground, because there is no worker for background tasks.
    agents = {name: replace(spec, background=()) for name, spec in catalog.agents.items()}
    return replace(catalog, agents=MappingProxyType(agents))
