"""What is done about an answer that broke off, or that its length limit ended: nothing said is lost.

                calls that had come whole   ─► run those, ask no more
broke off with  text                        ─► ask for the rest of it
                neither                     ─► take it back, ask again
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from app.domain.errors import InferenceFailed
from app.domain.ids import MessageId
from app.domain.inference.failures import FailureKind
from app.domain.inference.options import InferenceOptions, RetryPolicy
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.runtime.ports import ModelRequest, StopReason

IDLE_STALL = "idle stall"
CONNECTION_RESET = "connection reset"
PAUSE_AFTER_STALL = 0.2
LENGTH_LIMIT = "length limit"

_THINKS = re.compile(r"thinking|reasoning|\bo[134]\b")


class RecoveryPlan(StrEnum):
    RUN_CALLS = "run_calls"
    CONTINUE = "continue"
    START_OVER = "start_over"


def plan_for(*, has_whole_calls: bool, text: str) -> RecoveryPlan:
    """White space alone is nothing to go on from: providers refuse it as a message."""
    if has_whole_calls:
        return RecoveryPlan.RUN_CALLS
    return RecoveryPlan.CONTINUE if text.strip() else RecoveryPlan.START_OVER


def cause_of(failure: InferenceFailed) -> str:
    """Why an answer broke off, as clients are told."""
    match failure.kind:
        case FailureKind.TIMEOUT:
            return IDLE_STALL
        case FailureKind.STREAM_INTERRUPTED:
            return CONNECTION_RESET
        case kind:
            return f"provider {kind} mid-stream"


def pause_before_recovery(cause: str, recoveries: int, policy: RetryPolicy) -> float:
    """Seconds; `recoveries` are those that were made before. A stall was a pause already."""
    backoff = policy.backoff_base * 2.0**recoveries
    return min(PAUSE_AFTER_STALL if cause == IDLE_STALL else backoff, policy.max_backoff)


def idle_limit(policy: RetryPolicy, model: str, options: InferenceOptions) -> float:
    """How long a model may say nothing; one that thinks may take twice as long.

    An adapter has a bound of its own. The shorter of the two counts, and both mean the same.
    """
    thinks = options.reasoning_effort not in (None, "none") or _THINKS.search(model)
    return policy.stream_idle_timeout * (2 if thinks else 1)


def is_cut_by_length(
    stop_reason: StopReason | None, *, has_calls: bool, text: str, cut: bool
) -> bool:
    """Whether an answer lacks its end: without a whole call, and with text or with a call that was `cut`."""
    return stop_reason is StopReason.MAX_TOKENS and not has_calls and (cut or bool(text.strip()))


def continuation_request(
    request: ModelRequest, said: str, why: str, dropped: Sequence[str]
) -> ModelRequest:
    """The same request, asking for what is missing. The prompt for it is nowhere but in the request."""
    asked = [_prompt(why, dropped, has_text=bool(said.strip()))]
    if said.strip():
        asked.insert(0, _message("said", Role.ASSISTANT, said))
    return replace(request, messages=[*request.messages, *asked])


def _prompt(why: str, dropped: Sequence[str], *, has_text: bool) -> Message:
    sentences = [f"Your last answer was cut off ({why})."]
    if has_text:
        sentences.append(
            "Go on exactly where it stops: repeat nothing, and don't mention the break."
        )
    if dropped:
        sentences.append(
            f"Your call to {', '.join(dropped)} was not made. Issue it again if it is still needed, "
            "with shorter arguments if you can."
        )
    return _message("go-on", Role.USER, " ".join(sentences))


def _message(id: str, role: Role, text: str) -> Message:
    return Message(
        id=MessageId(id), role=role, content=(Text(text),), visibility=Visibility.INTERNAL
    )
