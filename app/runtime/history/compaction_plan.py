"""Decides when to summarise a log, and which range of it, from the log alone.

The range begins after the leading system messages, or where the last summary began. It never ends between
a call and its result. It is never longer than the summarising model can read, so a summary covers only
messages that were read.
"""

from collections.abc import Sequence

from msgspec import Struct

from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role
from app.runtime.history import token_estimates
from app.runtime.history.call_pairs import pairs_of, with_one_result_per_call
from app.runtime.history.summaries import SummaryRange, as_shown, newest_summary_range, summary_of
from app.runtime.history.truncation import truncated

MIN_SAVED_TOKENS = 1024
"""The least number of tokens that a summary must save."""
MIN_NEW_TOKENS = 2 * MIN_SAVED_TOKENS
"""The least number of tokens since the last summary that are worth a new one."""


class CompactionPolicy(Struct, frozen=True, kw_only=True):
    """All token counts are estimates. Without `model` the agent's own model summarises."""

    threshold: int
    keep_recent_messages: int
    max_input_tokens: int
    trim_results: bool = True
    model: str | None = None

    @property
    def max_message_tokens(self) -> int:
        """Tokens of one message that are read; the rest of a longer message is left out."""
        return self.max_input_tokens // 2


class CompactionPlan(Struct, frozen=True, kw_only=True):
    """A range to summarise: its messages as the model sees them now, and their tokens."""

    of: MessageRange
    messages: tuple[Message, ...]
    tokens: int


def size_of(message: Message, policy: CompactionPolicy) -> int:
    """Tokens of a message in later requests; 0 for old summaries, which are never shown."""
    if summary_of(message) is not None:
        return 0
    return token_estimates.of_message(truncated(message) if policy.trim_results else message)


def plan_compaction(
    log: Sequence[LoggedMessage], sizes: Sequence[int], policy: CompactionPolicy, overhead: int
) -> CompactionPlan | None:
    """The range to summarise now. `overhead` is the tokens of a request besides the log."""
    if overhead + sum(sizes) < policy.threshold:
        return None
    old = newest_summary_range(log)
    if old is not None and overhead + _shown_tokens(old, sizes) < policy.threshold:
        return None
    start = _leading_system_messages(log) if old is None else old.start
    read_from = start if old is None else old.stop
    last_summary = 0 if old is None else token_estimates.of_message(old.summary)
    budget = policy.max_input_tokens - last_summary
    stop = _furthest_stop(log, sizes, start, read_from, policy, budget)
    messages = with_one_result_per_call([entry.message for entry in log[read_from:stop]])
    new = [truncated(message) for message in messages if summary_of(message) is None]
    tokens = sum(map(token_estimates.of_message, new))
    if tokens < MIN_NEW_TOKENS:
        return None
    return CompactionPlan(
        of=MessageRange(log[start].seq, log[stop - 1].seq),
        messages=(*([] if old is None else [as_shown(old.summary)]), *new),
        tokens=last_summary + tokens,
    )


def _shown_tokens(old: SummaryRange, sizes: Sequence[int]) -> int:
    return (
        sum(sizes[: old.start]) + token_estimates.of_message(old.summary) + sum(sizes[old.stop :])
    )


def _leading_system_messages(log: Sequence[LoggedMessage]) -> int:
    for index, entry in enumerate(log):
        if entry.message.role is not Role.SYSTEM:
            return index
    return len(log)


def _furthest_stop(
    log: Sequence[LoggedMessage],
    sizes: Sequence[int],
    start: int,
    read_from: int,
    policy: CompactionPolicy,
    budget: int,
) -> int:
    """The end of the range: before the recent messages that are kept, and never between call and result."""
    pairs = pairs_of([entry.message for entry in log])
    late_results = [
        result
        for called, results in pairs.items()
        for result in results.values()
        if called < start and result >= read_from
    ]
    limit = min(_before_recent(log, policy.keep_recent_messages), *late_results, len(log))
    stop = answered_at = read_from
    for index in range(read_from, limit):
        budget -= min(sizes[index], policy.max_message_tokens)
        if budget < 0:
            return stop
        answered_at = max(answered_at, *pairs.get(index, {}).values(), index)
        if answered_at == index:
            stop = index + 1
    return stop


def _before_recent(log: Sequence[LoggedMessage], keep: int) -> int:
    for stop in range(len(log), 0, -1):
        if keep == 0:
            return stop
        keep -= summary_of(log[stop - 1].message) is None
    return 0
