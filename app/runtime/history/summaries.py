"""Summaries: messages of the log that replace a range of it in the model's view.

The range stays in the log, and a summary that doesn't fit its log is ignored. So a summary never loses
messages.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from msgspec import Struct

from app.domain.ids import MessageId, RunId
from app.domain.structs import replace
from app.domain.threads.messages import (
    LoggedMessage,
    Message,
    MessageRange,
    Role,
    Summary,
    Text,
    Visibility,
)
from app.runtime.history.call_pairs import Pairs, pairs_of

_SYSTEM = Role.SYSTEM
"""A name of its own, because Python 3.11 looks up members of enums slowly."""


class SummaryRange(Struct, frozen=True):
    """The range that a summary replaces, as indexes of the log; `stop` is exclusive."""

    summary: Message
    start: int
    stop: int


def summary_message(
    id: MessageId, text: str, of: MessageRange, run_id: RunId | None = None
) -> Message:
    """The message for the log; listings leave it out."""
    return Message(
        id=id,
        role=Role.SYSTEM,
        content=(Summary(text, of),),
        visibility=Visibility.INTERNAL,
        run_id=run_id,
    )


def with_newest_summary(log: Sequence[LoggedMessage]) -> list[Message]:
    """The log's messages, with the newest summary instead of its range."""
    messages = [entry.message for entry in log]
    if not any(message.role is _SYSTEM for message in messages):
        return messages
    found = newest_summary_range(log)
    if found is None:
        return [entry.message for entry in log if summary_of(entry.message) is None]
    before, after = log[: found.start], log[found.stop :]
    return [
        *(entry.message for entry in before if summary_of(entry.message) is None),
        as_shown(found.summary),
        *(entry.message for entry in after if summary_of(entry.message) is None),
    ]


def newest_summary_range(log: Sequence[LoggedMessage]) -> SummaryRange | None:
    """The newest summary that fits this log; its range may include older summaries."""
    pairs: Pairs | None = None
    for index in reversed(range(len(log))):
        summary = summary_of(log[index].message)
        if summary is not None:
            pairs = pairs_of([entry.message for entry in log]) if pairs is None else pairs
            found = _range_of(log, index, summary, pairs)
            if found is not None:
                return found
    return None


def summary_of(message: Message) -> Summary | None:
    """The message's summary, if the runtime wrote it: an internal system message with one block."""
    if message.role is _SYSTEM and message.visibility is Visibility.INTERNAL:
        match message.content:
            case (Summary() as summary,):
                return summary
    return None


def splits_a_call(pairs: Pairs, start: int, stop: int) -> bool:
    """Whether the range has a call without its result, or a result without its call."""
    return any(
        (start <= called < stop) != (start <= result < stop)
        for called, results in pairs.items()
        for result in results.values()
    )


def _range_of(
    log: Sequence[LoggedMessage], index: int, summary: Summary, pairs: Pairs
) -> SummaryRange | None:
    of = summary.of
    if of.to_seq >= log[index].seq or of.from_seq < log[0].seq:
        return None
    start = bisect_left(log, of.from_seq, key=_seq)
    stop = bisect_right(log, of.to_seq, key=_seq)
    if splits_a_call(pairs, start, stop):
        return None
    return SummaryRange(log[index].message, start, stop)


def _seq(entry: LoggedMessage) -> int:
    return entry.seq


def as_shown(message: Message) -> Message:
    """The summary as the model reads it."""
    text = "".join(block.text for block in message.content if isinstance(block, Summary))
    return replace(
        message, content=(Text(f"<conversation-summary>\n{text}\n</conversation-summary>"),)
    )
