"""Answers that a rate limit interrupted. The run's state has one until it is complete or the run ends."""

from app.domain.runs.rate_limits import (
    PARTIAL_ANSWER,
    PartialAnswer,
    partial_from_json,
    partial_to_json,
)
from app.domain.runs.terminations import Cancelled, Failed, Termination
from app.domain.threads.messages import Message, TruncationReason
from app.runtime.active_run import ActiveRun
from app.runtime.state import Change, ChangeBatch, StateKey

_PARTIAL: StateKey[PartialAnswer | None, PartialAnswer | None] = StateKey(
    PARTIAL_ANSWER, lambda: None, encode=partial_to_json, decode=partial_from_json
)


def partial_answer(run: ActiveRun) -> PartialAnswer | None:
    """The answer that the next inference completes."""
    run.state.register([_PARTIAL])
    return run.state.snapshot.get(_PARTIAL)


def keep_partial_answer(run: ActiveRun, partial: PartialAnswer | None) -> None:
    """Replace the partial answer; the next save stores it."""
    if partial != partial_answer(run):
        run.change_state(ChangeBatch([Change(_PARTIAL, partial)]))


def take_partial_answer(run: ActiveRun, termination: Termination) -> list[Message]:
    """Remove the partial answer, and return its message for the end of the run, if it has text."""
    partial = partial_answer(run)
    if partial is None:
        return []
    keep_partial_answer(run, None)
    message = partial.as_message(run.new_message_id(), _reason(termination))
    return [] if message is None else [message]


def _reason(termination: Termination) -> TruncationReason:
    match termination:
        case Cancelled():
            return TruncationReason.CANCELLED
        case Failed():
            return TruncationReason.FAILED
        case _:
            return TruncationReason.STOPPED
