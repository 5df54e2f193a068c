"""When old messages are worth a summary, and which of them."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.ids import MessageId
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role
from app.runtime.history import token_estimates
from app.runtime.history.call_pairs import pairs_of
from app.runtime.history.compaction_plan import (
    WORTH_READING,
    CompactionPlan,
    CompactionPolicy,
    plan_compaction,
    size_of,
)
from app.runtime.history.model_view import model_view
from app.runtime.history.summaries import splits_a_call, summary_message, summary_of
from tests.support.logs import call, log_of, message

POLICY = CompactionPolicy(threshold=10_000, keep_recent_messages=2, most_input_tokens=100_000)
THOUSAND_TOKENS = "x" * 3984
"""With what a message costs by itself."""


def user(id: str, text: str = THOUSAND_TOKENS) -> Message:
    return message(id, Role.USER, text)


def planned(
    log: Sequence[LoggedMessage], policy: CompactionPolicy = POLICY, taken: int = 0
) -> CompactionPlan | None:
    return plan_compaction(log, [size_of(entry.message, policy) for entry in log], policy, taken)


def stretch(log: Sequence[LoggedMessage], policy: CompactionPolicy = POLICY) -> tuple[int, int]:
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
    assert stretch(log_of(*users(10))) == (1, 8)


def test_leading_system_messages_are_kept() -> None:
    assert stretch(log_of(message("s", Role.SYSTEM, "be kind"), *users(10))) == (2, 9)


def test_the_stretch_ends_before_a_call_that_would_be_parted_from_its_result() -> None:
    asks = message("a", Role.ASSISTANT, "", call("c1"), call("c2"))
    results = [message(f"r{c}", Role.TOOL, "done", answers=c) for c in ("c1", "c2")]
    assert stretch(log_of(*users(10), asks, *results)) == (1, 10)
    assert stretch(log_of(*users(10), asks, *results, *users(2))) == (1, 13)


def test_no_more_is_summarised_than_can_be_read() -> None:
    policy = CompactionPolicy(threshold=10_000, keep_recent_messages=2, most_input_tokens=5000)
    assert stretch(log_of(*users(20)), policy) == (1, 5)


def test_a_message_longer_than_can_be_read_does_not_stop_everything() -> None:
    policy = CompactionPolicy(threshold=10_000, keep_recent_messages=2, most_input_tokens=5000)
    log = log_of(user("u", "x" * 100_000), *users(4))
    assert stretch(log, policy) == (1, 3)


def test_a_second_summary_reads_the_first_and_goes_on_from_there() -> None:
    log = log_of(*users(10), summary(1, 8), *users(10))
    found = planned(log)
    assert found is not None
    assert (found.of.from_seq, found.of.to_seq) == (1, 19)
    assert found.messages[0].text.startswith("<conversation-summary>")
    assert [m.id for m in found.messages[1:]] == ["u8", "u9", *(f"u{n}" for n in range(8))]
    assert found.tokens == 500 + 10_000


def test_a_summary_counts_for_what_it_stands_for() -> None:
    assert planned(log_of(*users(10), summary(1, 8), *users(7))) is None


def test_too_little_is_not_worth_reading() -> None:
    log = log_of(*users(1), *[user(f"v{n}", THOUSAND_TOKENS * 8) for n in range(2)])
    assert planned(log) is None


def test_results_are_read_as_short_as_they_are_shown() -> None:
    messages = [message("a", Role.ASSISTANT, "", call("c")), user("u")]
    result = message("r", Role.TOOL, "x" * 80_000, answers="c")
    found = planned(log_of(messages[0], result, *users(12)))
    assert found is not None
    assert len(found.messages[1].text) < 2000


# --- whatever the log looks like ------------------------------------------------------------------


@st.composite
def any_log(draw: st.DrawFn) -> list[LoggedMessage]:
    messages: list[Message] = []
    for n in range(draw(st.integers(5, 40))):
        role = draw(st.sampled_from(["user", "asks", "result", "system", "summary", "said"]))
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
            roles = {"user": Role.USER, "system": Role.SYSTEM, "said": Role.ASSISTANT}
            messages.append(message(id_, roles[role], text))
    return log_of(*messages)


POLICIES = st.builds(
    lambda threshold, keep, most: CompactionPolicy(
        threshold=threshold, keep_recent_messages=keep, most_input_tokens=most
    ),
    st.integers(WORTH_READING, 20_000),
    st.integers(1, 6),
    st.integers(2000, 50_000),
)


@settings(deadline=None)
@given(any_log(), POLICIES)
def test_what_is_planned_fits_the_log_and_makes_the_view_shorter(
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
    said = summary_message(MessageId("new"), "short", found.of)
    before, now = model_view(log), model_view([*log, LoggedMessage(len(log) + 1, said)])
    assert any("short" in m.text for m in now)
    assert size(now) < size(before)


@settings(deadline=None)
@given(any_log(), POLICIES)
def test_once_summarised_a_stretch_is_not_summarised_again_by_itself(
    log: list[LoggedMessage], policy: CompactionPolicy
) -> None:
    found = planned(log, policy)
    for _ in range(50):
        if found is None:
            return
        said = summary_message(MessageId("new"), "short", found.of)
        log = [*log, LoggedMessage(len(log) + 1, said)]
        again = planned(log, policy)
        assert again is None or again.of.to_seq > found.of.to_seq
        found = again
    raise AssertionError("summaries never come to an end")


def is_summary(message: Message) -> bool:
    return summary_of(message) is not None


def size(messages: list[Message]) -> int:
    return sum(map(token_estimates.of_message, messages))
