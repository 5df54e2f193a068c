"""The demo: agents that work without a file, and without a key."""

from pathlib import Path
from typing import Any

import pytest

from app.agents import demo
from app.agents.demo.catalog import demo_catalog
from app.domain.ids import AgentId, CallId, MessageId
from app.domain.runs.run_info import run_info
from app.domain.threads.messages import Message, Role, Text
from app.domain.tools.tool_calls import Effect
from app.llm.scripted.model import Call
from app.llm.scripted.scripts import demo as demo_script
from app.llm.specs import specs_from_environment
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.tool_context import ToolContext
from holdfast.testing import Turn, call, run_agent, say
from tests.support.records import a_record


def request_of(prompt: str) -> ModelRequest:
    """What the model of the demo is sent."""
    message = Message(id=MessageId("m"), role=Role.USER, content=(Text(prompt),))
    tools = [each.descriptor for each in demo_catalog().tools.values()]
    return ModelRequest(system_prompt="", messages=[message], tools=tools)


def test_the_demo_needs_no_key() -> None:
    catalog = demo_catalog()
    [demo] = catalog.agents.values()
    assert demo.id == "demo"
    assert demo.approval == ("delete_file",)
    [rule] = demo.plugins["permission"]["rules"]
    assert rule == {"tool": "refund(amount > 50)", "behavior": "ask"}
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
        run=run_info(a_record()),
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


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("prompt", "arguments", "waits"),
    [
        ("Please refund 80 for order A-7.", {"number": "A-7", "amount": 80}, True),
        ("Refund 50.5 euros for A-7", {"number": "A-7", "amount": 50.5}, True),
        ("refund 50 euros of the order B-2", {"number": "B-2", "amount": 50}, False),
        ("Please delete /tmp/old-report.txt", {"path": "/tmp/old-report.txt"}, True),
    ],
)
async def test_the_demo_asks_about_refunds_above_fifty_without_a_key(
    prompt: str, arguments: dict[str, Any], waits: bool
) -> None:
    file = Path(demo.__file__).with_name("demo.toml")
    script = demo_script(request_of(prompt))
    [called] = [each for each in script.parts if isinstance(each, Call)]
    assert called.arguments == arguments
    turns: list[Turn] = [call(called.tool, **arguments), say("Done.")]
    async with run_agent(file, script=turns, message=prompt) as run:
        assert (run.status == "waiting") is waits
        if waits:
            await run.approve()
        assert run.outcome == "succeeded"
        [made] = run.calls
        assert "pretend" in str(made.result)
