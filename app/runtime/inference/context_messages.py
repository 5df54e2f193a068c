"""Context messages: messages of plugins that one request shows the model in addition to the log.

They never enter the log. For a message with a cooldown the state keeps the step that showed it last, and a
digest of its text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.domain.ids import MessageId
from app.domain.json_values import Json, digest
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.runtime.plugins import AddContext, ContextTarget
from app.runtime.state import Change, MergeStrategy, StateKey


class ShownContext(Struct, frozen=True):
    """The step that showed a context message last, and a digest of its text."""

    step: int
    digest: str


def _encode(shown: Mapping[str, ShownContext]) -> Json:
    return {key: {"step": last.step, "digest": last.digest} for key, last in shown.items()}


def _decode(raw: Mapping[str, Mapping[str, Any]]) -> Mapping[str, ShownContext]:
    return {key: ShownContext(last["step"], last["digest"]) for key, last in raw.items()}


THROTTLE: StateKey[Mapping[str, ShownContext], Mapping[str, ShownContext]] = StateKey(
    "__runtime.context_throttle",
    default=dict,
    apply=lambda shown, now: {**shown, **now},
    merge=MergeStrategy.COMMUTATIVE,
    encode=_encode,
    decode=_decode,
)
"""The context messages with a cooldown that were shown, by key."""


class WithContext(Struct, frozen=True):
    """The messages of one request, and the state changes that record them."""

    messages: list[Message]
    changes: tuple[Change, ...] = ()


def with_context(
    messages: Sequence[Message],
    requested: Iterable[AddContext],
    shown: Mapping[str, ShownContext],
    step: int,
) -> WithContext:
    """Insert the context messages that are due; of two with the same key the last one counts."""
    by_key = {context.key: context for context in requested}
    due = sorted(
        (context for context in by_key.values() if _is_due(context, shown, step)),
        key=lambda context: (context.priority, context.key),
    )
    if not due:
        return WithContext(list(messages))
    head = _leading_system_messages(messages)
    now = {
        context.key: ShownContext(step, digest(context.text))
        for context in due
        if context.cooldown_steps
    }
    return WithContext(
        [
            *_messages_at(due, ContextTarget.SYSTEM),
            *messages[:head],
            *_messages_at(due, ContextTarget.CONVERSATION),
            *messages[head:],
            *_messages_at(due, ContextTarget.SUFFIX),
        ],
        (Change(THROTTLE, now),) if now else (),
    )


def _is_due(context: AddContext, shown: Mapping[str, ShownContext], step: int) -> bool:
    last = shown.get(context.key)
    return (
        last is None
        or step - last.step >= context.cooldown_steps
        or last.digest != digest(context.text)
    )


def _leading_system_messages(messages: Sequence[Message]) -> int:
    for position, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return position
    return len(messages)


def _messages_at(due: Sequence[AddContext], target: ContextTarget) -> list[Message]:
    return [
        Message(
            id=MessageId(f"context:{context.key}"),
            role=Role.SYSTEM,
            content=(Text(context.text),),
            visibility=Visibility.INTERNAL,
        )
        for context in due
        if context.target is target
    ]
