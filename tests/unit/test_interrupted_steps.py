"""Model answers that a stop request interrupts: what is kept, and whether the step starts again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from app.domain.ids import CallId
from app.domain.inference.options import RetryPolicy
from app.domain.runs.runs import LIMIT_REACHED, Done, Waiting
from app.domain.runs.terminations import Cancelled, NaturalEnd, Stopped
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, TruncationReason
from app.llm.scripted.model import turn
from app.runtime.endings import HandedOver
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    ModelChunk,
    ModelFinished,
    ModelRequest,
    StopReason,
    TextChunk,
)
from tests.support.plain_runs import PlainRun, until

pytestmark = pytest.mark.anyio


class Slow:
    """A model whose first answer stops after some text and never ends; the next one ends at once."""

    name = "slow"

    def __init__(self, *chunks: ModelChunk) -> None:
        self.chunks = chunks
        self.answered = asyncio.Event()
        self.times = 0

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        self.times += 1

        async def pieces() -> AsyncIterator[Sequence[ModelChunk]]:
            if self.times > 1:
                yield [TextChunk("Done."), ModelFinished(StopReason.END_TURN, None)]
                return
            yield self.chunks
            self.answered.set()
            await asyncio.Event().wait()

        yield pieces()


HALF = (TextChunk("Half of"), CallOpened(CallId("c1"), "pay"), CallArguments(CallId("c1"), "{"))


async def interrupted(
    model: Slow, cancel_request: str, on_limit: str = "stop"
) -> tuple[PlainRun, object]:
    """A run that got a stop request during its inference, and its ending."""
    run = PlainRun()
    run.agent = replace(run.agent, model=model)
    request = {"limits": {"wall_seconds": 3600}, "on_limit": on_limit}
    await run.create(request=request)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run.execute())
        await until(model.answered)
        cancel_requests = {
            "cancel": lambda interruption: interruption.cancel("enough"),
            "hand over": lambda interruption: interruption.hand_over(now=True),
            "time": lambda interruption: interruption.out_of_time(now=True),
        }
        cancel_requests[cancel_request](run.interruption)
    return run, task.result()


def left_by(run: PlainRun) -> list[Message]:
    return [entry.message for entry in run.rows.log if entry.message.role is Role.ASSISTANT]


@pytest.mark.parametrize(
    "cancel_request, reason",
    [("cancel", TruncationReason.CANCELLED), ("time", TruncationReason.STOPPED)],
)
async def test_a_cancelled_step_keeps_the_streamed_text(
    cancel_request: str, reason: TruncationReason
) -> None:
    run, _ = await interrupted(Slow(*HALF), cancel_request)
    state = run.rows.record.state
    assert isinstance(state, Done)
    assert isinstance(state.termination, Cancelled if cancel_request == "cancel" else Stopped)
    [message] = left_by(run)
    assert (message.text, message.cut_short, message.tool_calls) == ("Half of", reason, ())
    assert [event["tool_call_id"] for event in run.events("tool_call_cancel")] == ["c1"]
    assert state.final_output == "Half of"


@pytest.mark.parametrize("cancel_request", ["cancel", "time"])
async def test_a_cancelled_step_without_text_keeps_no_message(cancel_request: str) -> None:
    run, _ = await interrupted(Slow(TextChunk(" \n")), cancel_request)
    assert run.rows.record.is_done
    assert left_by(run) == []


async def test_a_step_that_is_handed_over_starts_again() -> None:
    model = Slow(*HALF)
    run, ending = await interrupted(model, "hand over")
    assert ending == HandedOver()
    assert left_by(run) == []
    assert not run.events("tool_call_cancel")
    await run.execute()
    assert [message.text for message in left_by(run)] == ["Done."]
    assert isinstance(run.rows.record.state, Done)
    assert run.rows.record.state.termination == NaturalEnd()


async def test_a_step_whose_run_asks_for_more_time_starts_again() -> None:
    run, _ = await interrupted(Slow(*HALF), "time", on_limit="ask")
    state = run.rows.record.state
    assert isinstance(state, Waiting)
    assert state.message == LIMIT_REACHED
    assert left_by(run) == []
    assert [event["reason"] for event in run.events("stream_reset")] == [LIMIT_REACHED]


async def test_answers_that_are_too_long_are_continued_as_often_as_the_policy_allows() -> None:
    cut = [turn(f"{number} ", stop_reason=StopReason.MAX_TOKENS) for number in range(9)]
    run = PlainRun(*cut, retry=RetryPolicy(max_continuation_retries=2))
    await run.start()
    assert run.rows.record.is_done
    assert len(run.requests) == 3
    assert [message.text for message in left_by(run)] == ["0 1 2 "]
