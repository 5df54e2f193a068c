"""Summaries in the model view: which messages they replace, and when they are ignored."""

import pytest

from app.domain.ids import MessageId
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role, Text, Visibility
from app.runtime.history.summaries import summary_message, summary_of
from app.runtime.inference.request import model_view
from tests.support.logs import call, log_of, message


def user(id: str) -> Message:
    return message(id, Role.USER, f"text of {id}")


def answer(id: str) -> Message:
    return message(id, Role.ASSISTANT, f"text of {id}")


def summary(id: str, from_seq: int, to_seq: int) -> Message:
    return summary_message(MessageId(id), f"text of {id}", MessageRange(from_seq, to_seq))


def shown(*messages: Message) -> list[str]:
    return [m.id for m in model_view(log_of(*messages))]


def test_a_summary_replaces_the_messages_of_its_range() -> None:
    log = [user("1"), answer("2"), user("3"), answer("4"), summary("5", 1, 2), user("6")]
    assert shown(*log) == ["5", "3", "4", "6"]


def test_models_read_a_summary_between_tags() -> None:
    [first, *_] = model_view(log_of(user("1"), answer("2"), summary("3", 1, 2), user("4")))
    assert first.role is Role.SYSTEM
    assert first.text == "<conversation-summary>\ntext of 3\n</conversation-summary>"


def test_messages_before_the_range_stay() -> None:
    log = [message("s", Role.SYSTEM, "be kind"), user("2"), answer("3"), summary("4", 2, 3)]
    assert shown(*log) == ["s", "4"]


def test_a_later_summary_may_replace_an_earlier_one() -> None:
    log = [user("1"), answer("2"), summary("3", 1, 2), user("4"), answer("5"), summary("6", 1, 4)]
    assert shown(*log) == ["6", "5"]


def test_only_the_newest_summary_is_shown() -> None:
    log = [user("1"), answer("2"), user("3"), summary("4", 1, 1), answer("5"), summary("6", 1, 2)]
    assert shown(*log) == ["6", "3", "5"]


@pytest.mark.parametrize("from_seq, to_seq", [(1, 9), (2, 5), (9, 9), (5, 5)])
def test_a_range_that_the_log_does_not_have_is_ignored(from_seq: int, to_seq: int) -> None:
    log = [user("1"), answer("2"), user("3"), answer("4"), summary("5", from_seq, to_seq)]
    assert shown(*log) == ["1", "2", "3", "4"]


def test_a_summary_that_separates_a_call_from_its_result_is_ignored() -> None:
    asks = message("2", Role.ASSISTANT, "", call("c1"))
    result = message("3", Role.TOOL, "done", answers="c1")
    assert shown(user("1"), asks, result, summary("4", 1, 2)) == ["1", "2", "3"]
    assert shown(user("1"), asks, result, summary("4", 3, 3)) == ["1", "2", "3"]
    assert shown(user("1"), asks, result, user("4"), summary("5", 1, 3)) == ["5", "4"]


def test_a_later_result_of_a_summarised_call_voids_the_summary() -> None:
    asks = message("2", Role.ASSISTANT, "", call("c1"))
    early = message("3", Role.TOOL, "pending", answers="c1")
    late = message("5", Role.TOOL, "done", answers="c1")
    assert shown(user("1"), asks, early, summary("4", 1, 3)) == ["4"]
    assert shown(user("1"), asks, early, summary("4", 1, 3), late) == ["1", "2", "5"]


def test_an_older_summary_is_used_when_the_newest_is_ignored() -> None:
    log = [user("1"), answer("2"), summary("3", 1, 2), user("4"), summary("5", 1, 7)]
    assert shown(*log) == ["3", "4"]


@pytest.mark.parametrize(
    "role, visibility",
    [
        (Role.USER, Visibility.ALL),
        (Role.USER, Visibility.INTERNAL),
        (Role.SYSTEM, Visibility.ALL),
    ],
)
def test_only_internal_system_messages_are_summaries(role: Role, visibility: Visibility) -> None:
    content = summary("3", 1, 2).content
    fake = Message(id=MessageId("3"), role=role, content=content, visibility=visibility)
    assert summary_of(fake) is None
    assert shown(user("1"), answer("2"), fake)[:2] == ["1", "2"]


def test_text_between_the_tags_of_a_summary_is_none() -> None:
    tagged = message("3", Role.SYSTEM, "<conversation-summary>mine</conversation-summary>")
    assert shown(user("1"), answer("2"), tagged) == ["1", "2", "3"]


def test_ranges_count_by_seq_not_by_list_position() -> None:
    log = log_of(user("11"), answer("12"), user("13"), first=11)
    log.append(LoggedMessage(14, summary("14", 11, 12)))
    assert [m.id for m in model_view(log)] == ["14", "13"]


def test_the_log_is_not_touched() -> None:
    log = log_of(user("1"), answer("2"), summary("3", 1, 2))
    before = list(log)
    model_view(log)
    assert log == before
    assert log[2].message.content != (Text("text of 3"),)
