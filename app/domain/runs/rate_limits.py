"""Rate limits: how long a run waits for a provider that asks for a pause, and how long in total.

A short pause is sat out by the worker. A longer one suspends the run until a moment that is durable. The
run's state keeps what it has waited, and the text of an answer that the pause has interrupted.
"""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from app.domain.ids import MessageId
from app.domain.json_values import JsonObject, as_object
from app.domain.threads.messages import Message, Role, Text, TruncationReason

RATE_LIMIT_WAITS = "__runtime.rate_limit"
"""Where a run's state keeps its waits: their number, their sum, and the newest one."""
PARTIAL_ANSWER = "__runtime.partial_answer"
"""Where it keeps the answer that a wait has interrupted. `hot_starts.py` names it, too."""

JITTER_SHARE = 0.1
MIN_JITTER_SECONDS = 1.0
MAX_JITTER_SECONDS = 30.0


class AskedBy(StrEnum):
    """Who asks for the pause."""

    PROVIDER = "provider"
    """By `Retry-After`."""
    BREAKER = "breaker"
    """The model's circuit breaker in this process is open."""
    PLUGIN = "plugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitPolicy:
    """Seconds: the longest pause that a worker sits out, and the sum of longer ones that a run may wait."""

    suspend_after: float = 20.0
    max_wait: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPause:
    """A pause of so many seconds. `source` is the model, as its agent and its provider name it, or the
    plugin that asks."""

    seconds: float
    asked_by: AskedBy
    source: str
    detail: str

    @property
    def sentence(self) -> str:
        """In words, for people."""
        match self.asked_by:
            case AskedBy.PROVIDER:
                return f"The provider of model {self.source} asks for a pause: {self.detail}"
            case AskedBy.BREAKER:
                return f"The circuit breaker of model {self.source} is open: {self.detail}"
            case AskedBy.PLUGIN:
                return f"The plugin {self.source} asks for a pause: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitWaits:
    """What a run has waited for rate limits so far."""

    count: int = 0
    seconds: float = 0.0
    breaker_waits: int = 0
    """Waits for a circuit breaker since the last whole answer."""
    newest: str = ""
    """Who asked for the newest wait, in words."""


@dataclass(frozen=True, slots=True)
class ResumeAt:
    """The run may wait until then."""

    until: datetime
    waits: RateLimitWaits


@dataclass(frozen=True, slots=True)
class WaitExceeded:
    """The run would wait longer than it may; why, in words."""

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
    """Until when a run waits. `chance`, between 0 and 1, spreads runs that wait for the same provider."""
    if not waits.seconds + pause.seconds <= policy.max_wait:
        return WaitExceeded(
            f"{pause.sentence} (it asks to wait {pause.seconds:g} s; the run has waited {waits.seconds:g} of the "
            f"{policy.max_wait:g} s that HOLDFAST_RATE_LIMIT_MAX_WAIT allows)"
        )
    seconds = pause.seconds + jitter(pause.seconds, chance)
    made = RateLimitWaits(
        count=waits.count + 1,
        seconds=round(waits.seconds + seconds, 3),
        breaker_waits=waits.breaker_waits + (pause.asked_by is AskedBy.BREAKER),
        newest=pause.sentence,
    )
    return ResumeAt(at + timedelta(seconds=seconds), made)


def jitter(seconds: float, chance: float) -> float:
    """What is added to a pause, so that not all runs resume at the same moment."""
    return chance * min(MAX_JITTER_SECONDS, max(MIN_JITTER_SECONDS, JITTER_SHARE * seconds))


def waits_to_json(waits: RateLimitWaits) -> dict[str, Any]:
    return asdict(waits)


def waits_from_json(raw: JsonObject) -> RateLimitWaits:
    return RateLimitWaits(**raw)


def waits_of(run_state: JsonObject | None) -> RateLimitWaits:
    """The waits of a run, by its stored state."""
    raw = _extension(run_state, RATE_LIMIT_WAITS)
    return RateLimitWaits() if raw is None else waits_from_json(raw)


# --- answers that a wait has interrupted ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """The text of an answer so far, why it broke off, and the names of its calls that were dropped."""

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
    """The interrupted answer of a run, by its stored state."""
    return partial_from_json(_extension(run_state, PARTIAL_ANSWER))


def _extension(run_state: JsonObject | None, name: str) -> JsonObject | None:
    return as_object((run_state or {}).get("extensions", {}).get(name))
