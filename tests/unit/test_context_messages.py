"""Context messages: their position, their order, and when they are shown again."""

from collections.abc import Mapping

from app.domain.threads.messages import Message, Role, Visibility
from app.runtime.inference.context_messages import THROTTLE, ShownContext, WithContext, with_context
from app.runtime.plugins import AddContext, ContextTarget
from app.runtime.state import ChangeBatch, StateScope, StateStore
from tests.support.logs import message

LOG = [
    message("s", Role.SYSTEM, "be kind"),
    message("u", Role.USER, "hello"),
    message("a", Role.ASSISTANT, "hi"),
]


def shown(
    *asked: AddContext, at: int = 0, before: Mapping[str, ShownContext] | None = None
) -> list[str]:
    return [m.text for m in with_context(LOG, asked, before or {}, at).messages]


def remembered(result: WithContext) -> Mapping[str, ShownContext]:
    store = StateStore([THROTTLE])
    store.commit(ChangeBatch(result.changes))
    return store.snapshot.get(THROTTLE)


def test_each_target_has_its_position() -> None:
    assert shown(
        AddContext(key="end", text="at the end", target=ContextTarget.SUFFIX),
        AddContext(key="talk", text="before the talk"),
        AddContext(key="top", text="on top", target=ContextTarget.SYSTEM),
    ) == ["on top", "be kind", "before the talk", "hello", "hi", "at the end"]


def test_context_messages_are_sorted_by_priority_and_then_by_key() -> None:
    asked = [
        AddContext(key="b", text="third"),
        AddContext(key="z", text="first", priority=-1),
        AddContext(key="a", text="second"),
        AddContext(key="c", text="last", priority=5),
    ]
    expected = ["be kind", "first", "second", "third", "last", "hello", "hi"]
    assert shown(*asked) == shown(*reversed(asked)) == expected


def test_messages_of_all_plugins_are_shown_and_each_key_once() -> None:
    asked = [
        AddContext(key="a", text="old"),
        AddContext(key="b", text="other"),
        AddContext(key="a", text="new"),
    ]
    assert shown(*asked) == ["be kind", "new", "other", "hello", "hi"]


def test_context_messages_are_internal_and_have_stable_ids() -> None:
    result = with_context(LOG, [AddContext(key="a", text="psst")], {}, 0)
    [context] = [m for m in result.messages if m not in LOG]
    assert (context.role, context.visibility, context.id) == (
        Role.SYSTEM,
        Visibility.INTERNAL,
        "context:a",
    )


def test_without_a_cooldown_a_message_is_shown_in_each_step_and_not_recorded() -> None:
    result = with_context(LOG, [AddContext(key="a", text="psst")], {}, 3)
    assert len(result.messages) == len(LOG) + 1
    assert result.changes == ()


def test_within_its_cooldown_a_message_is_not_shown_again() -> None:
    asked = AddContext(key="a", text="psst", cooldown_steps=3)
    memory = remembered(with_context(LOG, [asked], {}, 4))
    shown_again = [step for step in range(4, 9) if "psst" in shown(asked, at=step, before=memory)]
    assert shown_again == [7, 8]


def test_a_changed_text_is_shown_despite_its_cooldown() -> None:
    memory = remembered(
        with_context(LOG, [AddContext(key="a", text="one", cooldown_steps=9)], {}, 0)
    )
    assert "two" in shown(AddContext(key="a", text="two", cooldown_steps=9), at=1, before=memory)


def test_a_message_that_is_not_shown_is_not_recorded() -> None:
    asked = AddContext(key="a", text="psst", cooldown_steps=3)
    memory = remembered(with_context(LOG, [asked], {}, 4))
    assert with_context(LOG, [asked], memory, 5) == WithContext(LOG)


def test_the_record_of_shown_messages_survives_a_round_trip() -> None:
    store = StateStore([THROTTLE])
    asked = AddContext(key="a", text="psst", cooldown_steps=3)
    store.commit(ChangeBatch(with_context(LOG, [asked], {}, 4).changes))
    again = StateStore([THROTTLE])
    again.restore(StateScope.RUN, store.exported(StateScope.RUN))
    assert again.snapshot.get(THROTTLE) == store.snapshot.get(THROTTLE)


def test_context_messages_do_not_change_the_log() -> None:
    log: list[Message] = list(LOG)
    with_context(log, [AddContext(key="a", text="psst")], {}, 0)
    assert log == LOG
