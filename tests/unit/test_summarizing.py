"""Summaries: what the model reads, which answers are usable, and what they cost."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from app.domain.errors import InferenceFailed
from app.domain.runs.runs import Usage
from app.domain.threads.messages import Message, MessageRange, Role
from app.runtime.compaction import summarize as summarizing
from app.runtime.compaction.summarize import SummaryReply, SummaryRequest, summarize
from app.runtime.history.compaction_plan import MIN_SAVED_TOKENS, CompactionPlan
from app.runtime.ports.models import (
    ModelChunk,
    ModelFinished,
    ModelRequest,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
)
from tests.support.logs import call, message

pytestmark = pytest.mark.anyio

WORTH_IT = 10 * MIN_SAVED_TOKENS
TOKENS = TokenUsage(prompt_tokens=30, completion_tokens=4)
ENDED = ModelFinished(StopReason.END_TURN, TOKENS)


class Summarizer:
    """A model that answers with these chunks, and records its requests."""

    name = "summarizer"

    def __init__(self, *chunks: ModelChunk) -> None:
        self._chunks = chunks
        self.request: ModelRequest

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        self.request = request

        async def pieces() -> AsyncIterator[Sequence[ModelChunk]]:
            for chunk in self._chunks:
                yield [chunk]

        yield pieces()


def plan_of(*messages: Message, tokens: int = WORTH_IT) -> CompactionPlan:
    return CompactionPlan(of=MessageRange(1, 2), messages=messages, tokens=tokens)


async def answered(*chunks: ModelChunk, tokens: int = WORTH_IT) -> SummaryReply:
    plan = plan_of(message("u", Role.USER, "go"), tokens=tokens)
    return await summarize(Summarizer(*chunks), plan, 100)


async def read_by_the_model(plan: CompactionPlan, longest: int = 100) -> ModelRequest:
    model = Summarizer(ENDED)
    await summarize(model, plan, longest)
    return model.request


async def test_a_summary_is_the_whole_text_without_space_around_it() -> None:
    found = await answered(TextChunk("  It "), ReasoningChunk("hm"), TextChunk("is so.\n"), ENDED)
    assert (found.text, found.usage) == ("It is so.", Usage(30, 4))
    assert found.request == SummaryRequest("summarizer", TOKENS)


async def test_a_summary_holds_only_characters_that_can_be_stored() -> None:
    assert (await answered(TextChunk("a\0b"), ENDED)).text == "a\ufffdb"


@pytest.mark.parametrize("reason", list(StopReason))
async def test_only_a_summary_with_a_natural_end_is_complete(reason: StopReason) -> None:
    found = await answered(TextChunk("So."), ModelFinished(reason, None))
    is_whole = reason in (StopReason.END_TURN, StopReason.STOP_SEQUENCE)
    assert found == SummaryReply("So." if is_whole else None, Usage())


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_summary_is_refused(text: str) -> None:
    found = await answered(TextChunk(text), ENDED)
    assert (found.text, found.usage) == (None, Usage(30, 4))


@pytest.mark.parametrize("spare, is_used", [(0, True), (-1, False), (1, True)])
async def test_a_summary_must_save_enough(spare: int, is_used: bool) -> None:
    text = "x" * 4000
    found = await answered(TextChunk(text), ENDED, tokens=1000 + MIN_SAVED_TOKENS + spare)
    assert (found.text == text) is is_used


@pytest.mark.parametrize(
    "usage, counted",
    [
        (None, Usage()),
        (TokenUsage(prompt_tokens=None, completion_tokens=None), Usage()),
        (TokenUsage(prompt_tokens=7, completion_tokens=None), Usage(7, 0)),
        (TokenUsage(prompt_tokens=None, completion_tokens=5), Usage(0, 5)),
        (TokenUsage(prompt_tokens=0, completion_tokens=0), Usage()),
    ],
)
async def test_a_summary_costs_what_its_model_reports(
    usage: TokenUsage | None, counted: Usage
) -> None:
    found = await answered(TextChunk("So."), ModelFinished(StopReason.END_TURN, usage))
    assert found.usage == counted


async def test_a_stream_without_an_end_is_a_transient_failure() -> None:
    with pytest.raises(InferenceFailed, match="ended early") as failed:
        await answered(TextChunk("So."))
    assert failed.value.kind == "stream_interrupted"
    assert failed.value.retryable


async def test_the_summary_prompt_names_roles_and_calls() -> None:
    request = await read_by_the_model(
        plan_of(
            message("u", Role.USER, "Pay 5."),
            message("a", Role.ASSISTANT, "", call("c1", "pay", {"amount": 5})),
            message("b", Role.ASSISTANT, "Both.", call("c2", "a"), call("c3", "b")),
            message("t", Role.TOOL, "paid", answers="c1"),
        )
    )
    [asked] = request.messages
    assert asked.role is Role.USER
    assert asked.text == (
        "<conversation>\n"
        "user:\nPay 5.\n\n"
        'assistant:\n[calls pay with {"amount":5}]\n\n'
        "assistant:\nBoth.\n[calls a with {}]\n[calls b with {}]\n\n"
        "result of c1:\npaid\n"
        "</conversation>"
    )


@pytest.mark.parametrize(
    "length, shown",
    [
        (40, "x" * 40),
        (41, "x" * 40 + "\n[1 characters are left out here]"),
        (100, "x" * 40 + "\n[60 characters are left out here]"),
    ],
)
async def test_a_long_message_is_truncated_and_names_the_missing_length(
    length: int, shown: str
) -> None:
    plan = plan_of(message("u", Role.USER, "x" * length))
    [asked] = (await read_by_the_model(plan, longest=10)).messages
    assert asked.text == f"<conversation>\nuser:\n{shown}\n</conversation>"


@pytest.mark.parametrize(
    "tokens, words",
    [
        (MIN_SAVED_TOKENS + 200, 100),
        (MIN_SAVED_TOKENS + 2000, 1000),
        (MIN_SAVED_TOKENS + 9000, 1000),
    ],
)
async def test_the_requested_length_is_short_enough_to_save_tokens(tokens: int, words: int) -> None:
    request = await read_by_the_model(plan_of(message("u", Role.USER, "go"), tokens=tokens))
    assert request.system_prompt.endswith(f"no more than {words} words.")


async def test_a_summary_without_end_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarizing, "MAX_SUMMARY_CHARACTERS", 6)
    assert (await answered(TextChunk("abc"), TextChunk("def"), ENDED)).text == "abcdef"
    endless = await answered(TextChunk("abc"), TextChunk("defg"), ENDED)
    assert endless == SummaryReply(None, Usage())
