"""Answers of models without end: they are cut at their maximum, as by their length limit."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from app.domain.ids import CallId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd
from app.domain.structs import replace
from app.domain.threads.messages import Role
from app.runtime.active_run import ActiveRun
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    ModelChunk,
    ModelFinished,
    ModelRequest,
    ReasoningChunk,
    StopReason,
    TextChunk,
)
from tests.support.plain_runs import PlainRun

pytestmark = pytest.mark.anyio


class Endless:
    """A model that repeats a chunk; it ends the answer only if `times` says so."""

    name = "endless"

    def __init__(
        self, *chunks: ModelChunk, times: int | None = None, first: ModelChunk | None = None
    ) -> None:
        self.chunks, self.times, self.first = chunks, times, first
        self.batches = self.requests = 0
        self.is_closed = False

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        self.requests += 1
        if self.requests > 1:
            self.first = None
        try:
            yield self._pieces()
        finally:
            self.is_closed = True

    async def _pieces(self) -> AsyncIterator[Sequence[ModelChunk]]:
        if self.first is not None:
            yield [self.first]
        if self.requests > 1:
            yield [TextChunk("Sorry."), ModelFinished(StopReason.END_TURN, None)]
            return
        while self.times is None or self.batches < self.times:
            self.batches += 1
            yield self.chunks
        yield [ModelFinished(StopReason.END_TURN, None)]


async def executed(model: Endless, max_bytes: int) -> PlainRun:
    run = PlainRun()
    run.agent = replace(run.agent, model=model)

    def limited(active: ActiveRun) -> None:
        active.max_answer_bytes = max_bytes

    run.before_it_executes = limited
    await run.start()
    return run


def answers_of(run: PlainRun) -> list[str]:
    return [each.message.text for each in run.rows.log if each.message.role is Role.ASSISTANT]


def streamed(run: PlainRun, event_type: str) -> str:
    deltas = [event.get("delta") or event["args_delta"] for event in run.events(event_type)]
    return "".join(deltas)


async def test_a_text_without_end_is_cut_at_its_maximum_and_ends_the_run() -> None:
    model = Endless(TextChunk("abc"))
    run = await executed(model, 10)
    assert answers_of(run) == ["abcabcabca"]
    assert streamed(run, "text_delta") == "abcabcabca"
    assert isinstance(run.rows.record.state, Done)
    assert run.rows.record.state.termination == NaturalEnd()
    assert (model.requests, model.is_closed) == (1, True)
    assert model.batches == 4


async def test_a_text_of_exactly_the_maximum_is_not_cut() -> None:
    model = Endless(TextChunk("abc"), times=3)
    assert answers_of(await executed(model, 9)) == ["abcabcabc"]
    assert answers_of(await executed(Endless(TextChunk("abc"), times=3), 8)) == ["abcabcab"]


async def test_the_maximum_counts_bytes_and_cuts_no_character() -> None:
    assert answers_of(await executed(Endless(TextChunk("ää")), 7)) == ["äää"]


async def test_the_rest_of_a_batch_is_cut_too() -> None:
    model = Endless(TextChunk("abc"), CallOpened(CallId("c1"), "pay"), TextChunk("def"))
    run = await executed(model, 2)
    assert answers_of(run) == ["ab"]
    assert not run.events("tool_call_start")
    assert model.batches == 1


async def test_reasoning_without_end_is_cut() -> None:
    model = Endless(ReasoningChunk("hm "))
    run = await executed(model, 10)
    assert streamed(run, "reasoning_delta") == "hm hm hm h"
    assert model.is_closed


async def test_a_call_without_end_is_cut_and_not_made() -> None:
    model = Endless(CallArguments(CallId("c1"), "1, "), first=CallOpened(CallId("c1"), "pay"))
    run = await executed(model, 10)
    assert streamed(run, "tool_call_delta") == "1, 1, 1, 1"
    [cancelled] = run.events("tool_call_cancel")
    assert cancelled["reason"] == "length limit"
    assert not run.events("tool_call_done")
