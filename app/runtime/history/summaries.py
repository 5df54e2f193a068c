"""Summaries: messages of the log that stand for a stretch of it, wherever a model reads it.

The stretch stays where it is, and a summary that doesn't fit its log is as if it weren't there. So a
summary can't lose anything; it can only be taken for less than it is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.ids import MessageId, RunId
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


@dataclass(frozen=True, slots=True)
class SummaryRange:
    """What a summary stands for, as places in the log: from `start` up to, not including, `stop`."""

    summary: Message
    start: int
    stop: int


def summary_message(
    id: MessageId, text: str, of: MessageRange, run_id: RunId | None = None
) -> Message:
    """The message that a log gets; listings leave it out."""
    return Message(
        id=id,
        role=Role.SYSTEM,
        content=(Summary(text, of),),
        visibility=Visibility.INTERNAL,
        run_id=run_id,
    )


def with_summary_in_place(log: Sequence[LoggedMessage]) -> list[Message]:
    """The log's messages, with the newest summary in the place of what it stands for."""
    stretch = newest_summary_range(log)
    if stretch is None:
        return [entry.message for entry in log if summary_of(entry.message) is None]
    before, after = log[: stretch.start], log[stretch.stop :]
    return [
        *(entry.message for entry in before if summary_of(entry.message) is None),
        as_shown(stretch.summary),
        *(entry.message for entry in after if summary_of(entry.message) is None),
    ]


def newest_summary_range(log: Sequence[LoggedMessage]) -> SummaryRange | None:
    """The newest summary that fits this log; it may stand for older summaries, too."""
    pairs: Pairs | None = None
    for place in range(len(log) - 1, -1, -1):
        summary = summary_of(log[place].message)
        if summary is not None:
            pairs = pairs_of([entry.message for entry in log]) if pairs is None else pairs
            stretch = _stretch(log, place, summary, pairs)
            if stretch is not None:
                return stretch
    return None


def summary_of(message: Message) -> Summary | None:
    """Only what we wrote ourselves is one: an internal system message that is nothing else."""
    if message.role is Role.SYSTEM and message.visibility is Visibility.INTERNAL:
        match message.content:
            case (Summary() as summary,):
                return summary
    return None


def splits_a_call(pairs: Pairs, start: int, stop: int) -> bool:
    """Whether one end of the stretch stands between a call and its result."""
    return any(
        (start <= asked < stop) != (start <= answer < stop)
        for asked, answers in pairs.items()
        for answer in answers.values()
    )


def _stretch(
    log: Sequence[LoggedMessage], place: int, summary: Summary, pairs: Pairs
) -> SummaryRange | None:
    of = summary.of
    if of.to_seq >= log[place].seq or of.from_seq < log[0].seq:
        return None
    start = bisect_left(log, of.from_seq, key=_seq)
    stop = bisect_right(log, of.to_seq, key=_seq)
    if splits_a_call(pairs, start, stop):
        return None
    return SummaryRange(log[place].message, start, stop)


def _seq(entry: LoggedMessage) -> int:
    return entry.seq


def as_shown(message: Message) -> Message:
    """A summary as models read it."""
    text = "".join(block.text for block in message.content if isinstance(block, Summary))
    return replace(
        message, content=(Text(f"<conversation-summary>\n{text}\n</conversation-summary>"),)
    )
