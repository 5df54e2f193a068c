"""The scripted model answers exactly as its script and the transcript define."""

import asyncio

import pytest

from app.domain.errors import InferenceFailed
from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.threads.messages import Message, ToolCall
from app.domain.tools.tool_calls import ToolDescriptor
from app.llm.scripted.model import (
    Call,
    Fail,
    Gate,
    ScriptedModel,
    ScriptedReasoning,
    ScriptedText,
    in_order,
    turn,
)
from app.llm.scripted.scripts import Round, demo, plain, rounds_of
from app.runtime.ports.models import (
    ModelChunk,
    ModelFinished,
    ReasoningChunk,
    StopReason,
    TextChunk,
)
from tests.support.transcripts import ADD, asking, assistant, collect, listen, result

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
async def test_a_prompt_names_the_calls_to_make(prompt: str, rounds: tuple[Round, ...]) -> None:
    assert rounds_of(prompt) == rounds


async def test_a_list_of_turns_is_played_in_order() -> None:
    script = in_order(
        turn("first one"), turn(ScriptedReasoning(("hm",)), ScriptedText(("sec", "ond")))
    )
    model = ScriptedModel("m", script)
    assert (await collect(model, asking("a"))).text == "first one"
    received = await collect(model, asking("b"))
    assert received.chunks[:2] == (ReasoningChunk("hm"), TextChunk("second"))
    assert [request.messages[0].text for request in script.requests] == ["a", "b"]


async def test_a_finished_script_fails_permanently() -> None:
    with pytest.raises(InferenceFailed, match="has 0 turns") as caught:
        await collect(ScriptedModel("m", in_order()), asking("a"))
    assert not caught.value.retryable


async def test_arguments_that_are_not_json_are_sent_as_they_are() -> None:
    call = Call(tool="add", arguments='{"a": ', id=CallId("c1"))
    received = await collect(ScriptedModel("m", in_order(turn(call))), asking("a"))
    assert received.calls == {"c1": ("add", '{"a": ')}


async def test_a_scripted_failure_follows_the_text_before_it() -> None:
    error = failed(FailureKind.RATE_LIMITED, "slow down", retry_after=3)
    model = ScriptedModel("m", in_order(turn("so far", Fail(error))))
    chunks: list[ModelChunk] = []
    with pytest.raises(InferenceFailed) as caught:
        await listen(model, asking("a"), chunks)
    assert caught.value is error
    assert chunks == [TextChunk("so "), TextChunk("far")]


async def test_a_gate_holds_the_answer_until_it_is_opened() -> None:
    gate = Gate()
    model = ScriptedModel("m", in_order(turn("before", gate, "after")))
    async with asyncio.TaskGroup() as group:
        received = group.create_task(collect(model, asking("a")))
        await asyncio.wait_for(gate.reached.wait(), 5)
        assert not received.done()
        gate.open.set()
    assert received.result().text == "beforeafter"


async def test_a_pace_slows_each_piece() -> None:
    model = ScriptedModel("m", in_order(turn("one two three")), delay=0.01)
    began = asyncio.get_running_loop().time()
    received = await collect(model, asking("a"))
    assert received.lists == 4
    assert asyncio.get_running_loop().time() - began >= 0.03


async def test_the_demo_deletes_a_file_on_request() -> None:
    request = asking("Please delete /tmp/old-report.txt.", tools=[DELETE_FILE])
    received = await collect(ScriptedModel("m", demo), request)
    assert "/tmp/old-report.txt" in received.text
    assert list(received.calls.values()) == [("delete_file", '{"path":"/tmp/old-report.txt"}')]
    assert received.finished.stop_reason is StopReason.TOOL_USE


async def test_the_demo_repeats_the_result_of_the_deletion() -> None:
    call = ToolCall(CallId("c1"), "delete_file", {"path": "/tmp/x"})
    request = asking(
        "delete /tmp/x", assistant("", call), result("c1", "Denied: not yours"), tools=[DELETE_FILE]
    )
    received = await collect(ScriptedModel("m", demo), request)
    assert "delete_file answered: Denied: not yours" in received.text
    assert received.calls == {}


async def test_a_tool_that_is_not_offered_is_not_called() -> None:
    for prompt in ("delete /tmp/x", "CALL delete_file {}"):
        received = await collect(ScriptedModel("m", demo), asking(prompt, tools=[ADD]))
        assert received.calls == {}
        assert prompt in received.text


async def test_rounds_are_played_one_after_the_other() -> None:
    prompt = "CALL add {} then CALLS 2 add {}"
    call = ToolCall(CallId("c1"), "add", {})
    before: list[Message | str] = [prompt, assistant("", call), result("c1", "3")]
    model = ScriptedModel("m", plain)
    assert len((await collect(model, asking(prompt, tools=[ADD]))).calls) == 1
    assert len((await collect(model, asking(*before, tools=[ADD]))).calls) == 2
    over = [*before, assistant("", call), result("c1", "4")]
    assert "add answered: 4" in (await collect(model, asking(*over, tools=[ADD]))).text


async def test_only_the_newest_user_message_counts() -> None:
    request = asking("CALL add {}", assistant("no"), "hello", tools=[ADD])
    received = await collect(ScriptedModel("m", plain), request)
    assert received.text.startswith("You said: hello")
    assert isinstance(received.chunks[-1], ModelFinished)
