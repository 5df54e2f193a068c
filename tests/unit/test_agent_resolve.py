"""A stored spec resolves to an agent that can run, or to the reason why it can't."""

from collections.abc import AsyncIterator

import pytest

from app.agents.demo.catalog import demo_catalog
from app.agents.resolve import resolve
from app.domain.ids import AgentId
from app.domain.structs import replace
from app.llm.catalog import ModelCatalog
from app.runtime.agent import ResolvedAgent, UnknownAgentVersion

pytestmark = pytest.mark.anyio

CATALOG = demo_catalog()
DEMO = CATALOG.agents[AgentId("demo")]


@pytest.fixture
async def models() -> AsyncIterator[ModelCatalog]:
    catalog = ModelCatalog(list(CATALOG.models.values()), {})
    yield catalog
    await catalog.aclose()


async def test_a_spec_is_resolved_to_its_model_and_its_tools(models: ModelCatalog) -> None:
    resolved = resolve(DEMO, CATALOG, models)
    assert isinstance(resolved, ResolvedAgent)
    assert resolved.spec is DEMO
    assert resolved.model is models.with_breaker("demo")
    assert list(resolved.tools.values()) == [CATALOG.tools[name] for name in DEMO.tools]


async def test_an_agent_has_only_the_tools_of_its_spec(models: ModelCatalog) -> None:
    resolved = resolve(replace(DEMO, tools=("list_files",)), CATALOG, models)
    assert isinstance(resolved, ResolvedAgent)
    assert list(resolved.tools) == ["list_files"]


async def test_a_missing_model_tool_or_plugin_makes_a_spec_unresolvable(
    models: ModelCatalog,
) -> None:
    answer = resolve(replace(DEMO, tools=("list_files", "gone")), CATALOG, models)
    assert answer == UnknownAgentVersion("agent 'demo' can't run: there is no tool 'gone' any more")
    answer = resolve(replace(DEMO, model="gone", tools=("lost",)), CATALOG, models)
    assert isinstance(answer, UnknownAgentVersion)
    assert "no tool 'lost'" in answer.reason
    assert "model 'gone' isn't configured" in answer.reason


async def test_a_stored_rule_that_is_no_longer_valid_makes_a_spec_unresolvable(
    models: ModelCatalog,
) -> None:
    table = {"rules": [{"tool": "refund(amount = 5)", "behavior": "ask"}]}
    answer = resolve(replace(DEMO, plugins={"permission": table}), CATALOG, models)
    assert isinstance(answer, UnknownAgentVersion)
    assert "the table of its plugin 'permission' isn't valid any more" in answer.reason
    assert "'=' isn't a comparison; write ==" in answer.reason
