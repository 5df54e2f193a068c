"""Context messages: what plugins show a model beside the log, at its place in one request.

They never enter the log. What is not to be said in every step is remembered by its key: the step that
it was shown in last, and a digest of what it said.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.ids import MessageId
from app.domain.json_values import Json, digest
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.runtime.plugins import AddContext, ContextTarget
from app.runtime.state import Change, MergeStrategy, StateKey


@dataclass(frozen=True, slots=True)
class ShownContext:
    """When a context message was shown last, and what it said."""

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
"""Context messages that were shown, by their keys; those that are shown in every step aren't kept."""


@dataclass(frozen=True, slots=True)
class WithContext:
    """The messages of one request, and what must be remembered of them."""

    messages: list[Message]
    changes: tuple[Change, ...] = ()


def with_context(
    messages: Sequence[Message],
    asked: Iterable[AddContext],
    shown: Mapping[str, ShownContext],
    step: int,
) -> WithContext:
    """Insert what is due in this step; of two with the same key, the one asked for last."""
    by_key = {context.key: context for context in asked}
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
            *_of(due, ContextTarget.SYSTEM),
            *messages[:head],
            *_of(due, ContextTarget.CONVERSATION),
            *messages[head:],
            *_of(due, ContextTarget.SUFFIX),
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
    for place, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return place
    return len(messages)


def _of(due: Sequence[AddContext], target: ContextTarget) -> list[Message]:
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
