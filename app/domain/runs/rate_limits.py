"""Rate limits: how long a run waits for a provider that asks for a pause, and how long in total.

The worker waits for a short pause. A longer one suspends the run until a stored time. The run's state keeps
its waits, and the text of an answer that the pause interrupted.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from app.domain.ids import MessageId
from app.domain.json_values import JsonObject, as_object
from app.domain.threads.messages import Message, Role, Text, TruncationReason

RATE_LIMIT_WAITS = "__runtime.rate_limit"
"""Key of the waits in a run's state: their number, their sum, and the newest one."""
PARTIAL_ANSWER = "__runtime.partial_answer"
"""Key of the interrupted answer in a run's state. SQL in `app/storage` names it, too."""

JITTER_FRACTION = 0.1
MIN_JITTER_SECONDS = 1.0
MAX_JITTER_SECONDS = 30.0


class PauseOrigin(StrEnum):
    """Who asks for the pause."""

    PROVIDER = "provider"
    """By `Retry-After`."""
    BREAKER = "breaker"
    """The model's circuit breaker in this process is open."""
    PLUGIN = "plugin"


class RateLimitPolicy(Struct, frozen=True, kw_only=True):
    """Seconds: the longest pause that a worker waits for, and the largest sum of a run's longer waits."""

    suspend_after: float = 20.0
    max_wait: float = 3600.0


class TimedPause(Struct, frozen=True, kw_only=True):
    """A requested pause. `source` is the model, under its agent's or its provider's name, or the plugin."""

    seconds: float
    origin: PauseOrigin
    source: str
    detail: str

    @property
    def sentence(self) -> str:
        """The pause in words, for people."""
        match self.origin:
            case PauseOrigin.PROVIDER:
                return f"The provider of model {self.source} asks for a pause: {self.detail}"
            case PauseOrigin.BREAKER:
                return f"The circuit breaker of model {self.source} is open: {self.detail}"
            case PauseOrigin.PLUGIN:
                return f"The plugin {self.source} asks for a pause: {self.detail}"


class RateLimitWaits(Struct, frozen=True, kw_only=True):
    """A run's waits for rate limits so far."""

    count: int = 0
    seconds: float = 0.0
    breaker_waits: int = 0
    """Waits for a circuit breaker since the last complete answer."""
    newest: str = ""
    """The newest wait in words."""


class ResumeAt(Struct, frozen=True):
    """The run waits until then."""

    until: datetime
    waits: RateLimitWaits


class WaitExceeded(Struct, frozen=True):
    """The run would wait longer than it may. `detail` is the reason in words."""

    detail: str


WaitPlan: TypeAlias = ResumeAt | WaitExceeded


def plan_wait(
    pause: TimedPause,
    waits: RateLimitWaits,
    policy: RateLimitPolicy,
    *,
    at: datetime,
    chance: float,
) -> WaitPlan:
    """When the run resumes. `chance`, between 0 and 1, spreads runs that wait for the same provider."""
    if not waits.seconds + pause.seconds <= policy.max_wait:
        return WaitExceeded(
            f"{pause.sentence} (it asks to wait {pause.seconds:g} s; the run has waited {waits.seconds:g} of the "
            f"{policy.max_wait:g} s that HOLDFAST_RATE_LIMIT_MAX_WAIT allows)"
        )
    seconds = pause.seconds + jitter(pause.seconds, chance)
    new_waits = RateLimitWaits(
        count=waits.count + 1,
        seconds=round(waits.seconds + seconds, 3),
        breaker_waits=waits.breaker_waits + (pause.origin is PauseOrigin.BREAKER),
        newest=pause.sentence,
    )
    return ResumeAt(at + timedelta(seconds=seconds), new_waits)


def jitter(seconds: float, chance: float) -> float:
    """Seconds added to a pause, so that not all runs resume at the same time."""
    return chance * min(MAX_JITTER_SECONDS, max(MIN_JITTER_SECONDS, JITTER_FRACTION * seconds))


def waits_to_json(waits: RateLimitWaits) -> dict[str, Any]:
    return asdict(waits)


def waits_from_json(raw: JsonObject) -> RateLimitWaits:
    return RateLimitWaits(**raw)


def waits_of(run_state: JsonObject | None) -> RateLimitWaits:
    """The waits in a run's stored state."""
    raw = _extension(run_state, RATE_LIMIT_WAITS)
    return RateLimitWaits() if raw is None else waits_from_json(raw)


# --- interrupted answers --------------------------------------------------------------------------


class PartialAnswer(Struct, frozen=True):
    """The text of an interrupted answer, why it was interrupted, and the names of its dropped calls."""

    text: str
    cause: str
    dropped: tuple[str, ...] = ()

    def as_message(self, message_id: MessageId, reason: TruncationReason) -> Message | None:
        """The message that the end of the run writes; None when there is no text to keep."""
        if not self.text.strip():
            return None
        return Message(
            id=message_id,
            role=Role.ASSISTANT,
            content=(Text(self.text),),
            cut_short=reason,
        )


def partial_to_json(partial: PartialAnswer | None) -> dict[str, Any] | None:
    if partial is None:
        return None
    return {"text": partial.text, "cause": partial.cause, "dropped": list(partial.dropped)}


def partial_from_json(raw: JsonObject | None) -> PartialAnswer | None:
    if raw is None:
        return None
    return PartialAnswer(raw["text"], raw["cause"], tuple(raw["dropped"]))


def partial_answer_of(run_state: JsonObject | None) -> PartialAnswer | None:
    """The interrupted answer in a run's stored state."""
    return partial_from_json(_extension(run_state, PARTIAL_ANSWER))


def _extension(run_state: JsonObject | None, name: str) -> JsonObject | None:
    return as_object((run_state or {}).get("extensions", {}).get(name))
