"""Executes an agent of an agents file in memory, with a scripted model and a person played by the test."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from app.agents.catalog import Catalog, load_catalog
from app.agents.resolve import resolve
from app.bootstrap.agents import known_backends
from app.domain.agents.specs import AgentSpec
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, AgentVersion
from app.domain.json_values import Json, JsonObject
from app.domain.runs.runs import Done, Waiting
from app.domain.runs.terminations import outcome, termination_to_json
from app.domain.threads.messages import Message, Role
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus, can_resume, ticket_order
from app.llm.specs import specs_from_environment
from app.runtime.agent import Found, ResolvedAgent, UnknownAgentVersion
from app.runtime.cancellation import Interruption
from app.runtime.handoff import active_agent
from app.runtime.ports import ModelRequest
from app.runtime.state import StateKey, StateStore
from app.testing.journal import MemoryJournal
from app.testing.memory_thread import MemoryThread
from app.testing.scripts import ScriptedAnswers, ScriptedModels, Turn, agent_named
from app.tools.schemas.validate import build_validator

V = TypeVar("V")

_KEYS_IN_TESTS = {"OPENAI_API_KEY": "unused", "ANTHROPIC_API_KEY": "unused"}
"""Agents may use the models of these keys. The scripted model stands in for them."""


@dataclass(frozen=True, slots=True)
class OpenTicket:
    """One question that the run waits for."""

    kind: str
    tool: str
    arguments: Json
    message: str
    allowed_actions: frozenset[str]


@dataclass(frozen=True, slots=True)
class ToolCallMade:
    """One tool call of the model. `result` is what the model reads; None while the call waits."""

    tool: str
    arguments: Json
    result: str | None


@asynccontextmanager
async def run_agent(
    agents_file: str | Path,
    *,
    script: Sequence[Turn],
    agent: str | None = None,
    message: str = "Go.",
) -> AsyncIterator["AgentRun"]:
    """Execute an agent until its run waits or is done, and yield the run.

    `script` has one item for each answer of the model. `agent` may be left out when the file has only
    one. At the end of the block every turn of the script must have been used.

    Runs are in memory: no server, no database, no network. Tools, plugins, approval rules and hand-offs
    are the real ones. Some things need a server: calls of `background` tools run in the foreground,
    delegates are not started (answer their calls with `respond`), and approver rules and the expiry of
    tickets are not checked.
    """
    catalog = _catalog(Path(agents_file))
    answers = ScriptedAnswers(script)
    spec = catalog.agents[agent_named(tuple(catalog.agents), agent)]
    run = AgentRun(spec, _Agents(catalog, ScriptedModels(answers)), answers)
    await run.send(message)
    yield run
    if answers.left:
        raise AssertionError(
            f"the run used all but {answers.left} turns of the script; it is {run.status} now"
        )


class AgentRun:
    """A run in memory, and the person who answers its tickets. Each answer executes the run further."""

    def __init__(self, spec: AgentSpec, agents: "_Agents", answers: ScriptedAnswers) -> None:
        self._agents = agents
        self._answers = answers
        self._thread = MemoryThread(spec, subject="tester")
        self._has_run = False

    # --- what can be seen -----------------------------------------------------------------------

    @property
    def status(self) -> str:
        """`waiting` or `done`."""
        return self._thread.record.status.value

    @property
    def waiting_reason(self) -> str | None:
        """Why the run waits, as its record would say: `tool_permission`, `rate_limit`, `manual_pause`, …"""
        state = self._thread.record.state
        return state.reason.value if isinstance(state, Waiting) else None

    @property
    def outcome(self) -> str | None:
        """`succeeded`, `failed`, …; None while the run waits."""
        state = self._thread.record.state
        return outcome(state.termination).value if isinstance(state, Done) else None

    @property
    def termination(self) -> JsonObject | None:
        """How the run ended, as its record would say it; None while the run waits."""
        state = self._thread.record.state
        return termination_to_json(state.termination) if isinstance(state, Done) else None

    @property
    def response(self) -> str | None:
        """The run's answer: the last text of its model. None while the run waits."""
        state = self._thread.record.state
        return state.final_output if isinstance(state, Done) else None

    @property
    def tickets(self) -> tuple[OpenTicket, ...]:
        """The questions that are open."""
        return tuple(
            OpenTicket(
                kind=ticket.kind.value,
                tool=ticket.tool_name,
                arguments=ticket.arguments,
                message=ticket.message,
                allowed_actions=frozenset(action.value for action in ticket.allowed_actions),
            )
            for ticket in self._open_tickets()
        )

    def waiting_for(self, tool: str) -> bool:
        """Whether a ticket about a call of this tool is open."""
        return any(ticket.tool_name == tool for ticket in self._open_tickets())

    @property
    def calls(self) -> tuple[ToolCallMade, ...]:
        """The tool calls of this run, in their order."""
        results: dict[str, Message] = {}
        for message in self.messages:
            if message.role is Role.TOOL and message.tool_call_id is not None:
                results[message.tool_call_id] = message
        waiting = {ticket.call_id for ticket in self._open_tickets()}
        made = []
        for each in [one for message in self.messages for one in message.tool_calls]:
            result = results.get(each.id)
            edited = None if result is None else result.ran_with
            made.append(
                ToolCallMade(
                    tool=each.name,
                    arguments=each.arguments if edited is None else edited,
                    result=None if result is None or each.id in waiting else result.text,
                )
            )
        return tuple(made)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that this run has read and written."""
        run = self._thread.record
        triggers = () if run.input is None else run.input.trigger_message_ids
        log = [entry.message for entry in self._thread.log]
        return tuple(one for one in log if one.run_id == run.id or one.id in triggers)

    @property
    def events(self) -> tuple[JsonObject, ...]:
        """The events of the thread, as its stream shows them."""
        return tuple(self._thread.events)

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """What the model was sent."""
        return tuple(self._answers.requests)

    def state(self, key: StateKey[V, Any]) -> V:
        """A value of the state of this run, or of its thread."""
        stored = (self._thread.record.run_state or {}).get("extensions", {})
        values: Mapping[str, Any] = {**stored, **self._thread.thread_state}
        store = StateStore([key])
        store.restore(key.scope, {name: values[name] for name in (key.name,) if name in values})
        return store.snapshot.get(key)

    # --- what a person can do -------------------------------------------------------------------

    async def approve(self, tool: str | None = None) -> None:
        """Let a call run. `tool` may be left out when only one ticket is open."""
        await self._decide(tool, DecisionAnswer(action=Action.APPROVE))

    async def edit(self, arguments: JsonObject, *, tool: str | None = None) -> None:
        """Let a call run with other arguments."""
        ticket = self._ticket(tool)
        resolved = await self._resolved()
        problem = resolved.tools[ticket.tool_name].invalid_arguments(arguments)
        if problem is not None:
            raise ValueError(f"the edited arguments can't be used: {problem}")
        await self._decide(tool, DecisionAnswer(action=Action.EDIT, arguments=arguments))

    async def respond(self, result: Json, *, tool: str | None = None) -> None:
        """Give a call's result without running its tool; the answer of a delegate, too."""
        ticket = self._ticket(tool)
        if ticket.kind is TicketKind.CHILD:
            report = {**(ticket.evidence or {}), "status": "completed", "succeeded": True}
            report |= {"response": result, "steps": 1}
            await self._apply(ticket, DecisionAnswer(action=Action.RESPOND, result=report))
            return
        if ticket.response_schema is not None:
            problem = build_validator(ticket.response_schema).problem(result)
            if problem is not None:
                raise ValueError(f"the result isn't what the tool asked for: {problem}")
        await self._decide(tool, DecisionAnswer(action=Action.RESPOND, result=result))

    async def reject(self, reason: str | None = None, *, tool: str | None = None) -> None:
        """Deny a call. The model reads the reason."""
        await self._decide(tool, DecisionAnswer(action=Action.REJECT, reason=reason))

    async def cancel_call(self, reason: str | None = None, *, tool: str | None = None) -> None:
        """Cancel a call; the run continues."""
        await self._decide(tool, DecisionAnswer(action=Action.CANCEL, reason=reason))

    async def signal(self, name: str, key: str, payload: Json = None) -> None:
        """Send a signal to the calls that wait for it."""
        waiting = [
            ticket
            for ticket in self._open_tickets()
            if ticket.event is not None and (ticket.event.name, ticket.event.key) == (name, key)
        ]
        if not waiting:
            raise ValueError(f"no call waits for the event {name!r} with the key {key!r}")
        answer = DecisionAnswer(action=Action.RESPOND, result=payload)
        for ticket in waiting:
            if ticket.response_schema is not None:
                problem = build_validator(ticket.response_schema).problem(payload)
                if problem is not None:
                    raise ValueError(f"the call doesn't take this payload: {problem}")
        for ticket in waiting:
            await self._thread.decide(ticket, answer)
        await self._continue()

    async def resume(self) -> None:
        """Resume a run that a plugin has paused, or that waits for a rate limit, now."""
        if self._thread.record.pause is None and self.waiting_reason != "rate_limit":
            raise ValueError("the run is neither paused nor waiting for a rate limit")
        self._thread.record = replace(self._thread.record, pause=None)
        await self._execute()

    async def cancel(self, reason: str | None = None) -> None:
        """Cancel the run."""
        await self._thread.cancel(reason)

    async def send(self, message: str, *, script: Sequence[Turn] = ()) -> None:
        """Start the thread's next run with this message; `script` adds turns for it."""
        if self._has_run and self.status != "done":
            raise ValueError("the run waits: answer its tickets or cancel it first")
        self._has_run = True
        self._answers.extend(script)
        await self._thread.start(here=False, text=message)
        await self._execute()

    # --- executing ------------------------------------------------------------------------------

    async def _decide(self, tool: str | None, answer: DecisionAnswer) -> None:
        ticket = self._ticket(tool)
        if answer.action not in ticket.allowed_actions:
            allowed = ", ".join(sorted(ticket.allowed_actions))
            raise ValueError(
                f"the ticket about {ticket.tool_name!r} can't be answered with"
                f" {answer.action.value!r}; allowed are: {allowed}"
            )
        await self._apply(ticket, answer)

    async def _apply(self, ticket: Ticket, answer: DecisionAnswer) -> None:
        await self._thread.decide(ticket, answer)
        await self._continue()

    async def _continue(self) -> None:
        if not self._thread.record.is_paused and can_resume(self._thread.unsettled()):
            await self._execute()

    async def _execute(self) -> None:
        claimed = await self._thread.claim()
        if claimed is None:
            return
        interruption = Interruption()
        journal = MemoryJournal(self._thread, claimed.record.attempt, interruption.abandon)
        agent = await self._resolved()
        await self._thread.advance(
            self._thread.active_run(claimed, agent, self._agents, interruption, journal)
        )

    async def _resolved(self) -> ResolvedAgent:
        record = self._thread.record
        handed_to = active_agent(self._thread.thread_state) if record.run_state else None
        found = await self._agents.at_version(
            *(handed_to or (record.agent_id, record.agent_version))
        )
        if isinstance(found, ResolvedAgent):
            return found
        why = found.reason if isinstance(found, UnknownAgentVersion) else "it lives elsewhere"
        raise ConfigurationError(f"agent {record.agent_id!r} can't be executed in memory: {why}")

    def _open_tickets(self) -> list[Ticket]:
        tickets = self._thread.tickets.values()
        return sorted((t for t in tickets if t.status is TicketStatus.OPEN), key=ticket_order)

    def _ticket(self, tool: str | None) -> Ticket:
        tickets = self._open_tickets()
        found = [each for each in tickets if tool in (None, each.tool_name)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.tool_name for each in tickets) or "none"
        raise ValueError(
            f"{len(found)} open tickets fit, but exactly one must; open are tickets about: {names}"
        )


class _Agents:
    """The agents of one file, each with the scripted model."""

    def __init__(self, catalog: Catalog, models: ScriptedModels) -> None:
        self._catalog = catalog
        self._models = models

    async def at_version(self, agent_id: AgentId, version: AgentVersion | None) -> Found:
        spec = self._catalog.agents.get(agent_id)
        if spec is None:
            return UnknownAgentVersion(f"there is no agent {agent_id!r}")
        if spec.endpoint is not None:
            return UnknownAgentVersion(f"agent {agent_id!r} lives behind an endpoint")
        return resolve(spec, self._catalog, self._models)


def _catalog(file: Path) -> Catalog:
    catalog = load_catalog(
        file, default_models=specs_from_environment(_KEYS_IN_TESTS), endpoints=known_backends()
    )
    # In the foreground, because there is no worker for background tasks.
    agents = {name: replace(spec, background=()) for name, spec in catalog.agents.items()}
    return replace(catalog, agents=MappingProxyType(agents))
