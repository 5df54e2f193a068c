"""When a log is worth a summary, and which stretch of it: decided from the log and nothing else.

The stretch begins after the leading system messages, or where the last summary began, and ends between
two messages that don't belong together. It never holds more than the summarising model can read: a
summary stands for nothing that wasn't read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role
from app.runtime.history import token_estimates
from app.runtime.history.call_pairs import answered, pairs_of
from app.runtime.history.summaries import SummaryRange, as_shown, newest_summary_range, summary_of
from app.runtime.history.truncation import truncated

MIN_SAVED_TOKENS = 1024
"""Tokens that a summary must save."""
WORTH_READING = 2 * MIN_SAVED_TOKENS
"""Tokens that must have come since the last summary, whatever the rest takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """Tokens are estimates. Without a `model`, the agent's own summarises."""

    threshold: int
    keep_recent_messages: int
    most_input_tokens: int
    trim_results: bool = True
    model: str | None = None

    @property
    def longest_message(self) -> int:
        """Tokens of one message that are read; one that is longer must not stop everything."""
        return max(1, self.most_input_tokens // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """A stretch to summarise: its messages as a model is shown them now, and what they take."""

    of: MessageRange
    messages: tuple[Message, ...]
    tokens: int


def size_of(message: Message, policy: CompactionPolicy) -> int:
    """Tokens that a message of the log takes in later requests; old summaries are never shown."""
    if summary_of(message) is not None:
        return 0
    return token_estimates.of_message(truncated(message) if policy.trim_results else message)


def plan_compaction(
    log: Sequence[LoggedMessage], sizes: Sequence[int], policy: CompactionPolicy, taken: int
) -> CompactionPlan | None:
    """The stretch that should be summarised now. `taken` is what every request takes besides the log."""
    if taken + sum(sizes) < policy.threshold:
        return None
    old = newest_summary_range(log)
    if old is not None and taken + _shown(old, sizes) < policy.threshold:
        return None
    start = _leading_system_messages(log) if old is None else old.start
    read_from = start if old is None else old.stop
    last_summary = 0 if old is None else token_estimates.of_message(old.summary)
    room = policy.most_input_tokens - last_summary
    stop = _furthest_stop(log, sizes, start, read_from, policy, room)
    messages = answered([entry.message for entry in log[read_from:stop]])
    new = [truncated(message) for message in messages if summary_of(message) is None]
    tokens = sum(map(token_estimates.of_message, new))
    if tokens < WORTH_READING:
        return None
    return CompactionPlan(
        of=MessageRange(log[start].seq, log[stop - 1].seq),
        messages=(*([] if old is None else [as_shown(old.summary)]), *new),
        tokens=last_summary + tokens,
    )


def _shown(old: SummaryRange, sizes: Sequence[int]) -> int:
    return (
        sum(sizes[: old.start]) + token_estimates.of_message(old.summary) + sum(sizes[old.stop :])
    )


def _leading_system_messages(log: Sequence[LoggedMessage]) -> int:
    for place, entry in enumerate(log):
        if entry.message.role is not Role.SYSTEM:
            return place
    return len(log)


def _furthest_stop(
    log: Sequence[LoggedMessage],
    sizes: Sequence[int],
    start: int,
    read_from: int,
    policy: CompactionPolicy,
    room: int,
) -> int:
    """Where the stretch ends: before the messages that are kept, and where no call waits for its result."""
    pairs = pairs_of([entry.message for entry in log])
    of_calls_before = [
        answer
        for asked, answers in pairs.items()
        for answer in answers.values()
        if asked < start and answer >= read_from
    ]
    most = min(_before_recent(log, policy.keep_recent_messages), *of_calls_before, len(log))
    stop = read_from
    answered_at = -1
    for place in range(read_from, most):
        room -= min(sizes[place], policy.longest_message)
        if room < 0:
            break
        answered_at = max(answered_at, *pairs.get(place, {}).values(), place)
        if answered_at == place:
            stop = place + 1
    return stop


def _before_recent(log: Sequence[LoggedMessage], keep: int) -> int:
    for place in range(len(log) - 1, -1, -1):
        if keep == 0:
            return place + 1
        keep -= summary_of(log[place].message) is None
    return 0
