"""Which old messages are summarised, and when."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.ids import MessageId
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role
from app.runtime.history import token_estimates
from app.runtime.history.call_pairs import pairs_of
from app.runtime.history.compaction_plan import (
    MIN_NEW_TOKENS,
    CompactionPlan,
    CompactionPolicy,
    plan_compaction,
    size_of,
)
from app.runtime.history.summaries import splits_a_call, summary_message, summary_of
from app.runtime.inference.request import model_view
from tests.support.logs import call, log_of, message

POLICY = CompactionPolicy(threshold=10_000, keep_recent_messages=2, max_input_tokens=100_000)
THOUSAND_TOKENS = "x" * 3984
"""Includes the fixed price of a message."""


def user(id: str, text: str = THOUSAND_TOKENS) -> Message:
    return message(id, Role.USER, text)


def planned(
    log: Sequence[LoggedMessage], policy: CompactionPolicy = POLICY, taken: int = 0
) -> CompactionPlan | None:
    return plan_compaction(log, [size_of(entry.message, policy) for entry in log], policy, taken)


def planned_range(
    log: Sequence[LoggedMessage], policy: CompactionPolicy = POLICY
) -> tuple[int, int]:
    found = planned(log, policy)
    assert found is not None
    return found.of.from_seq, found.of.to_seq


def users(count: int) -> list[Message]:
    return [user(f"u{n}") for n in range(count)]


def summary(from_seq: int, to_seq: int, text: str = "x" * 1984) -> Message:
    return summary_message(MessageId("s"), text, MessageRange(from_seq, to_seq))


def test_nothing_is_summarised_below_the_threshold() -> None:
    assert planned(log_of(*users(9))) is None
    assert planned(log_of(*users(10))) is not None


def test_the_system_prompt_and_the_tools_count() -> None:
    assert planned(log_of(*users(9)), taken=1000) is not None


def test_recent_messages_are_kept() -> None:
    assert planned_range(log_of(*users(10))) == (1, 8)


def test_leading_system_messages_are_kept() -> None:
    assert planned_range(log_of(message("s", Role.SYSTEM, "be kind"), *users(10))) == (2, 9)


def test_the_range_ends_before_a_call_whose_result_is_outside() -> None:
    asks = message("a", Role.ASSISTANT, "", call("c1"), call("c2"))
    results = [message(f"r{c}", Role.TOOL, "done", answers=c) for c in ("c1", "c2")]
    assert planned_range(log_of(*users(10), asks, *results)) == (1, 10)
    assert planned_range(log_of(*users(10), asks, *results, *users(2))) == (1, 13)


def test_the_range_fits_the_window_of_the_summary_model() -> None:
    policy = CompactionPolicy(threshold=10_000, keep_recent_messages=2, max_input_tokens=5000)
    assert planned_range(log_of(*users(20)), policy) == (1, 5)


def test_a_message_that_is_too_long_does_not_stop_summaries() -> None:
    policy = CompactionPolicy(threshold=10_000, keep_recent_messages=2, max_input_tokens=5000)
    log = log_of(user("u", "x" * 100_000), *users(4))
    assert planned_range(log, policy) == (1, 3)


def test_a_second_summary_reads_the_first_and_the_messages_after_it() -> None:
    log = log_of(*users(10), summary(1, 8), *users(10))
    found = planned(log)
    assert found is not None
    assert (found.of.from_seq, found.of.to_seq) == (1, 19)
    assert found.messages[0].text.startswith("<conversation-summary>")
    assert [m.id for m in found.messages[1:]] == ["u8", "u9", *(f"u{n}" for n in range(8))]
    assert found.tokens == 500 + 10_000


def test_a_summary_counts_as_the_messages_that_it_replaces() -> None:
    assert planned(log_of(*users(10), summary(1, 8), *users(7))) is None


def test_an_old_summary_and_what_follows_may_reach_just_the_threshold() -> None:
    """500 tokens of the summary, and 1000 of each message that it doesn't stand for."""
    log = log_of(*users(10), summary(1, 8), *users(8))
    assert planned(log, taken=0) is not None
    for more, is_planned in ((499, False), (500, True)):
        fewer = log_of(*users(10), summary(1, 8), *users(7))
        assert (planned(fewer, taken=more) is not None) is is_planned


def test_a_result_right_behind_a_summary_stays_with_its_call_before_it() -> None:
    late = message("r", Role.TOOL, "x", answers="c")
    asking = message("a", Role.ASSISTANT, "", call("c"))
    log = log_of(asking, *users(9), late, summary(2, 10), *users(12))
    assert planned(log) is None


def test_a_range_that_saves_too_little_is_not_summarised() -> None:
    log = log_of(*users(1), *[user(f"v{n}", THOUSAND_TOKENS * 8) for n in range(2)])
    assert planned(log) is None


def test_the_plan_counts_tool_results_in_their_shortened_form() -> None:
    messages = [message("a", Role.ASSISTANT, "", call("c")), user("u")]
    result = message("r", Role.TOOL, "x" * 80_000, answers="c")
    found = planned(log_of(messages[0], result, *users(12)))
    assert found is not None
    assert len(found.messages[1].text) < 2000


def test_half_of_the_window_is_read_of_one_message() -> None:
    assert POLICY.max_message_tokens == 50_000


def test_the_last_summary_takes_its_part_of_the_window() -> None:
    policy = CompactionPolicy(threshold=10_000, keep_recent_messages=2, max_input_tokens=5000)
    log = log_of(*users(10), summary(1, 8), *users(10))
    assert planned_range(log, policy) == (1, 13)


def test_one_message_is_summarised_if_the_others_are_recent() -> None:
    large = user("large", THOUSAND_TOKENS * 10)
    assert planned_range(log_of(large, *users(2))) == (1, 1)
    assert planned(log_of(large, *users(1))) is None


def test_the_least_number_of_new_tokens_is_summarised() -> None:
    policy = CompactionPolicy(
        threshold=MIN_NEW_TOKENS, keep_recent_messages=1, max_input_tokens=100_000
    )
    fixed = token_estimates.of_message(user("u", ""))
    just, less = (user("u", "x" * 4 * (MIN_NEW_TOKENS - fixed - short)) for short in (0, 1))
    assert size_of(just, policy) == MIN_NEW_TOKENS
    assert planned_range(log_of(just, *users(1)), policy) == (1, 1)
    assert planned(log_of(less, *users(1)), policy) is None


# --- any log --------------------------------------------------------------------------------------


@st.composite
def any_log(draw: st.DrawFn) -> list[LoggedMessage]:
    messages: list[Message] = []
    for n in range(draw(st.integers(5, 40))):
        role = draw(st.sampled_from(["user", "asks", "result", "system", "summary", "answer"]))
        text = "x" * draw(st.sampled_from([10, 2000, 8000]))
        id_ = f"m{n}"
        if role == "summary":
            of = MessageRange(draw(st.integers(1, 4)), draw(st.integers(4, 40)))
            messages.append(summary_message(MessageId(id_), text, of))
        elif role == "asks":
            ids = draw(st.lists(st.sampled_from(["c1", "c2"]), unique=True, min_size=1))
            messages.append(message(id_, Role.ASSISTANT, "", *map(call, ids)))
        elif role == "result":
            answers = draw(st.sampled_from(["c1", "c2"]))
            messages.append(message(id_, Role.TOOL, text, answers=answers))
        else:
            roles = {"user": Role.USER, "system": Role.SYSTEM, "answer": Role.ASSISTANT}
            messages.append(message(id_, roles[role], text))
    return log_of(*messages)


POLICIES = st.builds(
    lambda threshold, keep, most: CompactionPolicy(
        threshold=threshold, keep_recent_messages=keep, max_input_tokens=most
    ),
    st.integers(MIN_NEW_TOKENS, 20_000),
    st.integers(1, 6),
    st.integers(2000, 50_000),
)


@settings(deadline=None)
@given(any_log(), POLICIES)
def test_a_planned_range_fits_the_log_and_shortens_the_view(
    log: list[LoggedMessage], policy: CompactionPolicy
) -> None:
    found = planned(log, policy)
    if found is None:
        return
    messages = [entry.message for entry in log]
    start, stop = found.of.from_seq - 1, found.of.to_seq
    assert not splits_a_call(pairs_of(messages), start, stop)
    after = sum(not is_summary(message) for message in messages[stop:])
    assert after >= policy.keep_recent_messages
    new_summary = summary_message(MessageId("new"), "short", found.of)
    before, now = model_view(log), model_view([*log, LoggedMessage(len(log) + 1, new_summary)])
    assert any("short" in m.text for m in now)
    assert size(now) < size(before)


@settings(deadline=None)
@given(any_log(), POLICIES)
def test_a_summarised_range_is_not_summarised_again(
    log: list[LoggedMessage], policy: CompactionPolicy
) -> None:
    found = planned(log, policy)
    for _ in range(50):
        if found is None:
            return
        new_summary = summary_message(MessageId("new"), "short", found.of)
        log = [*log, LoggedMessage(len(log) + 1, new_summary)]
        again = planned(log, policy)
        assert again is None or again.of.to_seq > found.of.to_seq
        found = again
    raise AssertionError("summaries never come to an end")


def is_summary(message: Message) -> bool:
    return summary_of(message) is not None


def size(messages: list[Message]) -> int:
    return sum(map(token_estimates.of_message, messages))
