"""The run's waits for rate limits, kept in its state."""

from app.domain.runs.rate_limits import (
    RATE_LIMIT_WAITS,
    PauseOrigin,
    RateLimitWaits,
    TimedPause,
    waits_from_json,
    waits_to_json,
)
from app.domain.structs import replace
from app.runtime.active_run import ActiveRun
from app.runtime.state import Change, ChangeBatch, StateKey

_WAITS: StateKey[RateLimitWaits, RateLimitWaits] = StateKey(
    RATE_LIMIT_WAITS, RateLimitWaits, encode=waits_to_json, decode=waits_from_json
)


def current_waits(run: ActiveRun) -> RateLimitWaits:
    run.state.register([_WAITS])
    return run.state.snapshot.get(_WAITS)


def record_waits(run: ActiveRun, waits: RateLimitWaits) -> None:
    """Replace the waits; the next save stores them."""
    if waits != current_waits(run):
        run.change_state(ChangeBatch([Change(_WAITS, waits)]))


def record_answer(run: ActiveRun) -> None:
    """Reset the count of breaker waits after a complete answer."""
    waits = current_waits(run)
    if waits.breaker_waits:
        record_waits(run, replace(waits, breaker_waits=0))


def may_wait_again(run: ActiveRun, pause: TimedPause) -> bool:
    """Whether the run may wait once more. Waits for a breaker are limited like retries of the model; waits
    for a provider only by the sum of their seconds."""
    if pause.origin is not PauseOrigin.BREAKER:
        return True
    return current_waits(run).breaker_waits < run.agent.spec.retry.max_retries
