"""The log as a provider sees it: each call with exactly one result and its effective arguments."""

from app.domain.structs import replace
from app.domain.threads.messages import (
    Media,
    Message,
    Role,
    TruncationReason,
    UrlSource,
    Visibility,
)
from app.domain.tools.tool_calls import INTERRUPTED
from app.runtime.inference.request import model_view
from tests.support.logs import call, log_of, message


def user(id: str) -> Message:
    return message(id, Role.USER, "hello")


def asks(id: str, *names: str) -> Message:
    return message(id, Role.ASSISTANT, "", *(call(name, arguments={"a": 1}) for name in names))


def result(
    id: str, answers: str, text: str, edited_arguments: dict[str, int] | None = None
) -> Message:
    return message(id, Role.TOOL, text, answers=answers, edited_arguments=edited_arguments)


def view(*messages: Message) -> list[Message]:
    return model_view(log_of(*messages))


def results(messages: list[Message]) -> list[tuple[str | None, str]]:
    return [(m.tool_call_id, m.text) for m in messages if m.role is Role.TOOL]


def test_a_plain_conversation_is_shown_unchanged() -> None:
    log = [message("s", Role.SYSTEM, "be kind"), user("u"), message("a", Role.ASSISTANT, "hi")]
    assert view(*log) == log


def test_the_last_result_of_a_call_counts() -> None:
    shown = view(
        user("u"),
        asks("a", "c1"),
        result("p", "c1", "awaiting approval"),
        result("r", "c1", "deleted"),
    )
    assert results(shown) == [("c1", "deleted")]


def test_results_follow_their_message_in_the_order_of_its_calls() -> None:
    shown = view(asks("a", "c1", "c2"), result("r2", "c2", "two"), result("r1", "c1", "one"))
    assert [m.role for m in shown] == [Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert results(shown) == [("c1", "one"), ("c2", "two")]


def test_a_result_that_came_after_other_messages_is_moved_to_its_call() -> None:
    shown = view(asks("a", "c1"), user("u"), result("r", "c1", "late"))
    assert [m.id for m in shown] == ["a", "r", "u"]


def test_a_call_without_result_was_interrupted() -> None:
    assert results(view(asks("a", "c1", "c2"), result("r", "c2", "two"))) == [
        ("c1", INTERRUPTED),
        ("c2", "two"),
    ]


def test_a_result_without_call_is_left_out() -> None:
    assert view(user("u"), result("r", "c9", "whose?")) == [user("u")]


def test_a_reused_call_id_has_one_result_for_each_use() -> None:
    shown = view(
        asks("a", "c1"), result("r", "c1", "first"), asks("b", "c1"), result("s", "c1", "second")
    )
    assert results(shown) == [("c1", "first"), ("c1", "second")]


def test_a_later_result_does_not_leak_back_to_an_earlier_use_of_its_id() -> None:
    shown = view(asks("a", "c1"), asks("b", "c1"), result("s", "c1", "second"))
    assert results(shown) == [("c1", INTERRUPTED), ("c1", "second")]


def test_edited_arguments_are_shown_as_executed() -> None:
    log = [asks("a", "c1", "c2"), result("r", "c1", "done", {"a": 2}), result("s", "c2", "done")]
    asked = view(*log)[0]
    assert [c.arguments for c in asked.tool_calls] == [{"a": 2}, {"a": 1}]
    assert [c.arguments for c in log[0].tool_calls] == [{"a": 1}, {"a": 1}]


def test_an_empty_assistant_message_is_left_out() -> None:
    assert view(user("u"), message("a", Role.ASSISTANT)) == [user("u")]


def test_internal_messages_are_shown_to_the_model() -> None:
    note = message("n", Role.USER, "again, please", visibility=Visibility.INTERNAL)
    assert view(user("u"), note) == [user("u"), note]


def test_media_keep_their_position() -> None:
    image = Media("image", UrlSource("https://example.com/x.png"))
    shown = Message(id=user("u").id, role=Role.USER, content=(image,))
    assert view(shown) == [shown]


def test_a_truncated_last_message_is_not_continued() -> None:
    cut = replace(message("a", Role.ASSISTANT, "so f"), cut_short=TruncationReason.FAILED)
    asked, more = user("u"), user("v")
    assert view(asked, cut) == [asked]
    assert view(asked, cut, more) == [asked, cut, more]
