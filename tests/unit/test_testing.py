"""`holdfast.testing`: agents of an agents file in memory, with a scripted model."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from textwrap import dedent
from typing import Any, Protocol

import pytest

from app.agents import demo
from holdfast import ConfigurationError, StateKey
from holdfast.testing import AgentRun, ScriptEnded, ToolCallMade, Turn, call, run_agent, say

pytestmark = pytest.mark.anyio

DEMO = Path(demo.__file__).with_name("demo.toml")

TOOLS = '''
from holdfast import ResumeMode, StateKey, ToolContext, ToolFailed, tool
from holdfast.plugins import (
    Change, Pause, Phase, Plugin, PluginConfig, PluginKind, SuspendRun,
)

refunds = StateKey("shop.refunds", default=int)

@tool(effect="read")
async def find_order(number: str) -> dict:
    """Look an order up."""
    if number == "0":
        raise ToolFailed("unknown_order", "There is no order 0.")
    return {"number": number, "total": 80}

@tool
async def refund(number: str, amount: int) -> str:
    """Pay money back."""
    return f"Refunded {amount} for {number}."

@tool(effect="read")
async def ask(ctx: ToolContext):
    """Ask a person."""
    return ctx.suspend(
        "Which account?",
        response_schema={"type": "string"},
        resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT,
    )

@tool(effect="read")
async def settled(invoice: str, ctx: ToolContext) -> str:
    """Wait for a payment."""
    return f"paid {await ctx.wait_for('payment', invoice, schema={'type': 'integer'})}"

@tool(effect="idempotent", retries=1)
async def receipt(media_type: str, ctx: ToolContext) -> str:
    """Save a receipt."""
    for name in ("receipt.pdf", "receipt.pdf", "copy.pdf"):
        file_id = await ctx.save_file(name, b"%PDF-1.4 paid", media_type=media_type)
    file = await ctx.open_file(file_id)
    return f"{file.name}: {(await file.read()).decode()}"

def build(agent, config):
    async def count(view):
        refunded = view.call.name == "refund"
        return [Change(refunds, view.state.get(refunds) + 1)] if refunded else []

    async def pause(view):
        if view.steps == 0 and config.pauses:
            return [Pause("a person looks at the first step")]
        return []

    return Plugin(
        name="counting",
        keys=[refunds],
        hooks={Phase.AFTER_TOOL_EXECUTE: count, Phase.AFTER_INFERENCE: pause},
    )

class Counting(PluginConfig):
    pauses: bool = False

counting = PluginKind(name="counting", config=Counting, build=build)
'''
AGENTS = """
[models.gpt]
provider = "openai"
model = "gpt-5.4-mini"

[tools]
modules = ["shop_tools"]

[agents.support]
model = "gpt"
tools = ["find_order", "refund", "ask", "settled", "receipt"]
approval = ["refund"]
handoffs = ["billing"]
delegates = ["billing"]
background = ["settled"]
plugins = { counting = {} }

[agents.billing]
model = "anthropic"
tools = ["refund"]

[agents.careful]
model = "gpt"
tools = ["find_order"]
plugins = { counting = { pauses = true } }

[agents.far.endpoint]
backend = "a2a"
url = "http://127.0.0.1:9"
"""


@pytest.fixture
def agents_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "shop_tools.py").write_text(dedent(TOOLS))
    file = tmp_path / "agents.toml"
    file.write_text(AGENTS)
    return file


class Shop(Protocol):
    def __call__(
        self, *script: Turn, agent: str = "support"
    ) -> AbstractAsyncContextManager[AgentRun]: ...


@pytest.fixture
def shop(agents_file: Path) -> Shop:
    def running(*script: Turn, agent: str = "support") -> AbstractAsyncContextManager[AgentRun]:
        return run_agent(agents_file, agent=agent, script=script, message="Refund order 7.")

    return running


REFUND = call("refund", number="7", amount=80)


# --- files ----------------------------------------------------------------------------------------


async def test_files_that_a_tool_saves_are_artifacts_of_the_run(shop: Shop) -> None:
    async with shop(call("receipt", media_type="application/pdf"), say("Done.")) as run:
        assert run.calls[0].result == "copy.pdf: %PDF-1.4 paid"
        assert [(one.name, one.media_type, one.data) for one in run.artifacts] == [
            ("receipt.pdf", "application/pdf", b"%PDF-1.4 paid"),
            ("copy.pdf", "application/pdf", b"%PDF-1.4 paid"),
        ]
        saved = [one for one in run.events if one["event_type"] == "artifact_saved"]
        assert [one["file_id"] for one in saved] == [one.id for one in run.artifacts]
        await run.send("again", script=[say("No.")])
        assert run.artifacts == ()


async def test_a_file_of_another_type_than_declared_fails_the_call(shop: Shop) -> None:
    async with shop(call("receipt", media_type="image/png"), say("Sorry.")) as run:
        assert "media_type_mismatch" in (run.calls[0].result or "")
        assert run.artifacts == ()


# --- approvals ------------------------------------------------------------------------------------


async def test_a_call_waits_for_approval_and_runs_after_it(shop: Shop) -> None:
    async with shop(REFUND, say("Done.")) as run:
        assert run.waiting_for("refund")
        assert (run.status, run.waiting_reason) == ("waiting", "tool_permission")
        [ticket] = run.tickets
        assert ticket.arguments == {"number": "7", "amount": 80}
        assert run.calls == (ToolCallMade("refund", {"number": "7", "amount": 80}, None),)
        await run.approve()
        assert run.response == "Done."
        assert run.outcome == "succeeded"
        assert [made.result for made in run.calls] == ["Refunded 80 for 7."]


async def test_an_edited_call_runs_with_the_new_arguments(shop: Shop) -> None:
    async with shop(REFUND, say("Done.")) as run:
        with pytest.raises(ValueError, match="the edited arguments can't be used"):
            await run.edit({"number": "7"})
        await run.edit({"number": "7", "amount": 50})
        assert run.calls[0].arguments == {"number": "7", "amount": 50}
        assert run.calls[0].result == "Refunded 50 for 7."


async def test_the_model_reads_the_reason_of_a_rejection(shop: Shop) -> None:
    async with shop(REFUND, say("Sorry.")) as run:
        await run.reject("too much")
        assert run.calls[0].result == "Denied: too much"
        assert run.requests[1].messages[-1].text == "Denied: too much"


async def test_one_of_several_tickets_is_named_by_its_tool(shop: Shop) -> None:
    async with shop([REFUND, call("ask")], say("Done.")) as run:
        with pytest.raises(ValueError, match="open are tickets about: "):
            await run.approve()
        await run.approve("refund")
        assert run.status == "waiting"
        with pytest.raises(ValueError, match="can't be answered with 'approve'"):
            await run.approve("ask")
        with pytest.raises(ValueError, match="isn't what the tool asked for"):
            await run.respond(7)
        await run.respond("the old one")
        assert run.calls[1].result == "the old one"


async def test_a_cancelled_call_lets_the_run_continue_and_a_cancel_ends_it(shop: Shop) -> None:
    async with shop(REFUND, REFUND) as run:
        await run.cancel_call()
        assert run.waiting_for("refund")
        await run.cancel("not wanted")
        assert run.outcome == "cancelled"


# --- what else a run meets ------------------------------------------------------------------------


async def test_a_failing_tool_is_a_result_and_background_calls_run_at_once(shop: Shop) -> None:
    script = [call("find_order", number="0"), call("settled", invoice="i1"), say("Paid.")]
    async with shop(*script) as run:
        assert run.calls[0].result == "[unknown_order] There is no order 0."
        with pytest.raises(ValueError, match="no call waits for the event"):
            await run.signal("payment", "i2", 5)
        with pytest.raises(ValueError, match="doesn't take this payload"):
            await run.signal("payment", "i1", "five")
        await run.signal("payment", "i1", 5)
        assert run.calls[1].result == "paid 5"


async def test_a_hand_off_continues_with_the_other_agent(shop: Shop) -> None:
    async with shop(call("transfer_to_billing"), REFUND, say("Refunded.")) as run:
        assert [made.result for made in run.calls][1] == "Refunded 80 for 7.", (
            "it needs no approval"
        )
        assert [tool.name for tool in run.requests[1].tools] == ["refund"]


async def test_the_answer_of_a_delegate_is_given_by_the_test(shop: Shop) -> None:
    async with shop(call("agent_run_billing", prompt="Refund it."), say("Done.")) as run:
        assert run.waiting_for("agent_run_billing")
        await run.respond("It is refunded.")
        assert "It is refunded." in (run.calls[0].result or "")
        assert run.response == "Done."


async def test_state_of_plugins_can_be_read_and_lives_as_long_as_its_run(
    shop: Shop, agents_file: Path
) -> None:
    key: StateKey[int, int] = StateKey("shop.refunds", default=int)
    async with shop(REFUND, say("Done.")) as run:
        assert run.state(key) == 0
        await run.approve()
        assert run.state(key) == 1


async def test_a_paused_run_is_resumed(shop: Shop) -> None:
    async with shop(call("find_order", number="7"), say("Found."), agent="careful") as run:
        assert run.waiting_reason == "manual_pause"
        assert len(run.requests) == 1, "it finished its step"
        await run.resume()
        assert run.response == "Found."


async def test_the_next_run_of_the_thread_reads_the_earlier_messages(shop: Shop) -> None:
    async with shop(say("Hello.")) as run:
        await run.send("And now?", script=[say("Nothing.")])
        assert run.response == "Nothing."
        texts = [message.text for message in run.requests[1].messages]
        assert texts == ["Refund order 7.", "Hello.", "And now?"]
        assert [event["event_type"] for event in run.events].count("run_finish") == 2


# --- mistakes of the test -------------------------------------------------------------------------


async def test_a_script_that_is_too_short_is_an_error(shop: Shop) -> None:
    with pytest.raises(ScriptEnded, match="after all 1 turns"):
        async with shop(call("find_order", number="7")):
            pass


async def test_a_script_that_is_too_long_is_an_error(shop: Shop) -> None:
    with pytest.raises(AssertionError, match="all but 1 turns of the script; it is done now"):
        async with shop(say("Hello."), say("Never said.")):
            pass


@pytest.mark.parametrize(
    ("agent", "problem"),
    [(None, "say which one"), ("suport", "there is no agent 'suport'")],
)
async def test_an_unknown_agent_is_named(
    agents_file: Path, agent: str | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        async with run_agent(agents_file, agent=agent, script=[]):
            pass


async def test_a_remote_agent_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigurationError, match="can't be executed in memory: .* an endpoint"):
        async with shop(agent="far"):
            pass


async def test_the_demo_agent_deletes_a_file_once_a_person_agrees() -> None:
    script = [call("delete_file", path="/tmp/todo.txt"), call("list_files"), say("It is gone.")]
    async with run_agent(DEMO, script=script) as run:
        await run.approve()
        assert "/tmp/todo.txt" not in (run.calls[1].result or "")
        assert run.response == "It is gone."


async def test_the_test_in_the_guide_passes(
    agents_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs/how-to/test-your-agents.md").read_text()
    written = guide.partition("<!-- a test of an agent -->\n```python\n")[2].partition("```")[0]
    assert "run_agent" in written
    monkeypatch.chdir(agents_file.parent)
    names: dict[str, Any] = {}
    exec(written, names)
    await names["test_a_refund_waits_for_approval"]()


SHOP_WITH_RESOURCES = """
from holdfast import Deps, ToolContext, startup, tool

@startup
async def open_shop(deps: Deps):
    deps.shop = "the real shop"
    yield
    print("shop closed")

@tool
async def look(ctx: ToolContext) -> str:
    return f"{ctx.deps.shop} {ctx.run.metadata} {ctx.run.context} {ctx.run.started_by}"
"""


@pytest.mark.parametrize(
    ("deps", "shop"), [(None, "the real shop"), ({"shop": "a fake"}, "a fake")]
)
async def test_a_test_gives_metadata_a_context_and_resources_of_its_own(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    deps: dict[str, object] | None,
    shop: str,
) -> None:
    (tmp_path / "shop.py").write_text(SHOP_WITH_RESOURCES)
    file = tmp_path / "agents.toml"
    file.write_text(
        '[models.m]\nprovider = "scripted"\n[tools]\nmodules = ["shop"]\n'
        '[agents.clerk]\nmodel = "m"\ntools = ["look"]\n'
    )
    script: list[Turn] = [call("look"), say("Done.")]
    async with run_agent(
        file, script=script, metadata={"order": 3}, context={"customer": 7}, deps=deps
    ) as run:
        [made] = run.calls
        assert made.result == f"{shop} {{'order': 3}} {{'customer': 7}} tester"
        assert capsys.readouterr().out == ""
    assert capsys.readouterr().out == ("shop closed\n" if deps is None else "")
