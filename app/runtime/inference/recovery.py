"""Recovery of an answer that was interrupted, or cut by its length limit.

                    complete calls   ─► run these calls, ask no more
interrupted with    text             ─► ask for the rest of the answer
                    neither          ─► reset the stream, ask again
"""

import re
from collections.abc import Sequence
from enum import StrEnum

from app.domain.errors import InferenceFailed
from app.domain.ids import MessageId
from app.domain.inference.failures import FailureKind
from app.domain.inference.options import InferenceOptions, RetryPolicy
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.runtime.ports.models import ModelRequest, StopReason

IDLE_STALL = "idle stall"
CONNECTION_RESET = "connection reset"
PAUSE_AFTER_STALL_SECONDS = 0.2
LENGTH_LIMIT = "length limit"

_REASONING_MODEL = re.compile(r"thinking|reasoning|\bo[134]\b")


class RecoveryPlan(StrEnum):
    RUN_CALLS = "run_calls"
    CONTINUE = "continue"
    START_OVER = "start_over"


def plan_for(*, has_complete_calls: bool, text: str) -> RecoveryPlan:
    """How to recover. White space doesn't count as text: providers refuse it as a message."""
    if has_complete_calls:
        return RecoveryPlan.RUN_CALLS
    return RecoveryPlan.CONTINUE if text.strip() else RecoveryPlan.START_OVER


def cause_of(failure: InferenceFailed) -> str:
    """Why the answer was interrupted, as events name it."""
    match failure.kind:
        case FailureKind.TIMEOUT:
            return IDLE_STALL
        case FailureKind.STREAM_INTERRUPTED:
            return CONNECTION_RESET
        case kind:
            return f"provider {kind} mid-stream"


def pause_before_recovery(cause: str, recoveries: int, policy: RetryPolicy) -> float:
    """Seconds before the next attempt; `recoveries` counts the earlier ones. After a stall it is short."""
    backoff = policy.backoff_base * 2.0**recoveries
    return min(PAUSE_AFTER_STALL_SECONDS if cause == IDLE_STALL else backoff, policy.max_backoff)


def idle_limit(policy: RetryPolicy, model: str, options: InferenceOptions) -> float:
    """Seconds that the stream of a model may be silent; twice as many for a reasoning model.

    An adapter may have a shorter time-out of its own.
    """
    is_reasoning = options.reasoning_effort not in (None, "none") or _REASONING_MODEL.search(model)
    return policy.stream_idle_timeout * (2 if is_reasoning else 1)


def is_cut_by_length(
    stop_reason: StopReason | None, *, has_calls: bool, text: str, cut: bool
) -> bool:
    """Whether the length limit ended the answer before a complete call, within text or a `cut` call."""
    return stop_reason is StopReason.MAX_TOKENS and not has_calls and (cut or bool(text.strip()))


def continuation_request(
    request: ModelRequest, text: str, cause: str, dropped: Sequence[str]
) -> ModelRequest:
    """The request for the rest of an answer. Its prompt is only in the request, never in the log."""
    has_text = bool(text.strip())
    answer = [_message("partial-answer", Role.ASSISTANT, text)] if has_text else []
    prompt = _prompt(cause, dropped, has_text=has_text)
    return replace(request, messages=[*request.messages, *answer, prompt])


def _prompt(cause: str, dropped: Sequence[str], *, has_text: bool) -> Message:
    sentences = [f"Your last answer was cut off ({cause})."]
    if has_text:
        sentences.append(
            "Go on exactly where it stops: repeat nothing, and don't mention the break."
        )
    if dropped:
        sentences.append(
            f"Your call to {', '.join(dropped)} was not made. Issue it again if it is still needed, "
            "with shorter arguments if you can."
        )
    return _message("continue", Role.USER, " ".join(sentences))


def _message(id: str, role: Role, text: str) -> Message:
    return Message(
        id=MessageId(id), role=role, content=(Text(text),), visibility=Visibility.INTERNAL
    )
