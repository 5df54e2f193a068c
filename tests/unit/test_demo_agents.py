"""The demo: agents that work without a file, and without a key."""

from pathlib import Path

import pytest

from app.agents.demo.catalog import demo_catalog
from app.domain.ids import AgentId, CallId, RunId, ThreadId
from app.domain.tools.tool_calls import Effect
from app.llm.specs import specs_from_environment
from app.runtime.ports import ToolContext


def test_the_demo_needs_no_key() -> None:
    catalog = demo_catalog()
    [demo] = catalog.agents.values()
    assert demo.id == "demo"
    assert demo.approval == ("delete_file",)
    assert catalog.models[demo.model].provider == "scripted"
    assert catalog.models[demo.model].options == {"script": "demo", "delay_ms": 30}
    assert catalog.tools["list_files"].descriptor.effect is Effect.READ
    assert catalog.tools["delete_file"].descriptor.effect is Effect.UNSAFE


def test_a_key_in_the_environment_adds_an_agent() -> None:
    models = specs_from_environment({"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"})
    catalog = demo_catalog(default_models=models)
    assert list(catalog.agents) == ["demo", "openai", "anthropic"]
    agent = catalog.agents[AgentId("anthropic")]
    assert agent.model == "anthropic"
    assert agent.tools == catalog.agents[AgentId("demo")].tools
    assert agent.approval == ("delete_file",)


@pytest.mark.anyio
async def test_the_demo_deletes_nothing_real(tmp_path: Path) -> None:
    real = tmp_path / "real.txt"
    real.write_text("still here")
    catalog = demo_catalog()
    context = ToolContext(
        run_id=RunId("r"),
        thread_id=ThreadId("t"),
        call_id=CallId("c"),
        tool_name="delete_file",
        idempotency_key="k",
        emit=lambda event: None,
    )
    result = await catalog.tools["delete_file"].execute({"path": str(real)}, context)
    assert "pretend file" in result.text
    assert real.read_text() == "still here"
    await catalog.tools["delete_file"].execute({"path": "/tmp/todo.txt"}, context)
    listed = await catalog.tools["list_files"].execute({}, context)
    assert listed.data == ["/tmp/notes.md", "/tmp/old-report.txt"]
