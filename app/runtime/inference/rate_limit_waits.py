"""What a run has waited for rate limits, as its state keeps it."""

from dataclasses import replace

from app.domain.runs.rate_limits import (
    RATE_LIMIT_WAITS,
    AskedBy,
    RateLimitWaits,
    TimedPause,
    waits_from_json,
    waits_to_json,
)
from app.runtime.active_run import ActiveRun
from app.runtime.state import Change, ChangeBatch, StateKey

_WAITS: StateKey[RateLimitWaits, RateLimitWaits] = StateKey(
    RATE_LIMIT_WAITS, RateLimitWaits, encode=waits_to_json, decode=waits_from_json
)


def waits_so_far(run: ActiveRun) -> RateLimitWaits:
    run.state.register([_WAITS])
    return run.state.snapshot.get(_WAITS)


def note_waits(run: ActiveRun, waits: RateLimitWaits) -> None:
    """Replace them; durable with the next save."""
    if waits != waits_so_far(run):
        run.change_state(ChangeBatch([Change(_WAITS, waits)]))


def note_answer(run: ActiveRun) -> None:
    """A whole answer came: the model may be waited for as often as before."""
    note_waits(run, replace(waits_so_far(run), breaker_waits=0))


def may_wait_again(run: ActiveRun, pause: TimedPause) -> bool:
    """A breaker is waited for as often as the model is retried. A provider that names a time may do so
    again, within the sum of all waits."""
    if pause.asked_by is not AskedBy.BREAKER:
        return True
    return waits_so_far(run).breaker_waits < run.agent.spec.retry.max_retries
