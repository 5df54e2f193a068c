"""A model without a mind says exactly what its script and the transcript tell it to."""

import asyncio

import pytest

from app.domain.errors import InferenceFailed
from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.threads.messages import Message, ToolCall
from app.domain.tools.tool_calls import ToolDescriptor
from app.llm.scripted.model import Call, Fail, Gate, Say, ScriptedModel, Think, in_order, turn
from app.llm.scripted.prompts import Round, rounds_of
from app.llm.scripted.scripts import demo, plain
from app.runtime.ports import ModelChunk, ModelFinished, ReasoningChunk, StopReason, TextChunk
from tests.support.transcripts import ADD, asking, assistant, hear, listen, result

pytestmark = pytest.mark.anyio

DELETE_FILE = ToolDescriptor(name="delete_file", description="Deletes a file.", parameters={})


@pytest.mark.parametrize(
    "prompt, rounds",
    [
        ('CALL add {"a": 1}', (Round(1, "add", '{"a": 1}'),)),
        ('please CALLS 3 add {"a": {"b": "}"}} now', (Round(3, "add", '{"a": {"b": "}"}}'),)),
        ("CALL add {} and then CALL mul {}", (Round(1, "add", "{}"), Round(1, "mul", "{}"))),
        (
            'CALL ask {"prompt": "CALL add {}"} CALL mul {}',
            (Round(1, "ask", '{"prompt": "CALL add {}"}'), Round(1, "mul", "{}")),
        ),
        ("CALL add {broken", ()),
        ("RECALL add {}", ()),
        ("call me", ()),
    ],
)
async def test_a_prompt_says_which_calls_it_wants(prompt: str, rounds: tuple[Round, ...]) -> None:
    assert rounds_of(prompt) == rounds


async def test_a_list_of_turns_is_played_in_order() -> None:
    script = in_order(turn("first one"), turn(Think(("hm",)), Say(("sec", "ond"))))
    model = ScriptedModel("m", script)
    assert (await hear(model, asking("a"))).text == "first one"
    heard = await hear(model, asking("b"))
    assert heard.chunks[:2] == (ReasoningChunk("hm"), TextChunk("second"))
    assert [request.messages[0].text for request in script.requests] == ["a", "b"]


async def test_a_script_that_is_over_fails_for_good() -> None:
    with pytest.raises(InferenceFailed, match="has 0 turns") as caught:
        await hear(ScriptedModel("m", in_order()), asking("a"))
    assert not caught.value.retryable


async def test_arguments_that_are_not_json_are_sent_as_they_are() -> None:
    call = Call(tool="add", arguments='{"a": ', id=CallId("c1"))
    heard = await hear(ScriptedModel("m", in_order(turn(call))), asking("a"))
    assert heard.calls == {"c1": ("add", '{"a": ')}


async def test_a_failure_comes_after_what_was_said_before_it() -> None:
    error = failed(FailureKind.RATE_LIMITED, "slow down", retry_after=3)
    model = ScriptedModel("m", in_order(turn("so far", Fail(error))))
    said: list[ModelChunk] = []
    with pytest.raises(InferenceFailed) as caught:
        await listen(model, asking("a"), said)
    assert caught.value is error
    assert said == [TextChunk("so "), TextChunk("far")]


async def test_a_gate_holds_the_answer_until_it_is_opened() -> None:
    gate = Gate()
    model = ScriptedModel("m", in_order(turn("before", gate, "after")))
    async with asyncio.TaskGroup() as group:
        heard = group.create_task(hear(model, asking("a")))
        await asyncio.wait_for(gate.reached.wait(), 5)
        assert not heard.done()
        gate.open.set()
    assert heard.result().text == "beforeafter"


async def test_a_pace_slows_each_piece() -> None:
    model = ScriptedModel("m", in_order(turn("one two three")), delay=0.01)
    began = asyncio.get_running_loop().time()
    heard = await hear(model, asking("a"))
    assert heard.lists == 4
    assert asyncio.get_running_loop().time() - began >= 0.03


async def test_the_demo_deletes_a_file_when_it_is_asked_to() -> None:
    request = asking("Please delete /tmp/old-report.txt.", tools=[DELETE_FILE])
    heard = await hear(ScriptedModel("m", demo), request)
    assert "/tmp/old-report.txt" in heard.text
    assert list(heard.calls.values()) == [("delete_file", '{"path":"/tmp/old-report.txt"}')]
    assert heard.finished.stop_reason is StopReason.TOOL_USE


async def test_the_demo_tells_what_came_of_it() -> None:
    call = ToolCall(CallId("c1"), "delete_file", {"path": "/tmp/x"})
    request = asking(
        "delete /tmp/x", assistant("", call), result("c1", "Denied: not yours"), tools=[DELETE_FILE]
    )
    heard = await hear(ScriptedModel("m", demo), request)
    assert "delete_file answered: Denied: not yours" in heard.text
    assert heard.calls == {}


async def test_a_tool_that_is_not_offered_is_not_called() -> None:
    for prompt in ("delete /tmp/x", "CALL delete_file {}"):
        heard = await hear(ScriptedModel("m", demo), asking(prompt, tools=[ADD]))
        assert heard.calls == {}
        assert prompt in heard.text


async def test_rounds_are_played_one_after_the_other() -> None:
    prompt = "CALL add {} then CALLS 2 add {}"
    call = ToolCall(CallId("c1"), "add", {})
    before: list[Message | str] = [prompt, assistant("", call), result("c1", "3")]
    model = ScriptedModel("m", plain)
    assert len((await hear(model, asking(prompt, tools=[ADD]))).calls) == 1
    assert len((await hear(model, asking(*before, tools=[ADD]))).calls) == 2
    over = [*before, assistant("", call), result("c1", "4")]
    assert "add answered: 4" in (await hear(model, asking(*over, tools=[ADD]))).text


async def test_only_what_the_user_said_last_counts() -> None:
    request = asking("CALL add {}", assistant("no"), "hello", tools=[ADD])
    heard = await hear(ScriptedModel("m", plain), request)
    assert heard.text.startswith("You said: hello")
    assert isinstance(heard.chunks[-1], ModelFinished)
