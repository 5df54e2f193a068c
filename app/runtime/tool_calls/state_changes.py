"""What tools change of the state: taken in together with their results, in the order of their calls.

Calls that run at the same time have all seen the same state. Where two of them change a key that only
one may, the earlier call wins; the later one keeps its result, and the result says what was dropped.
"""

from collections.abc import Sequence
from dataclasses import replace

import structlog

from app.domain.ids import CallId
from app.domain.json_values import Json
from app.domain.tools.tool_calls import CallState, ToolResult, UnreportedOutcome
from app.runtime.active_run import ActiveRun
from app.runtime.state import Change, ChangeBatch, conflict_between
from app.runtime.tool_calls.execute import Executed

log = structlog.get_logger(__name__)


class ParallelChanges:
    """What calls of one round that ran at the same time have changed, as far as they were told."""

    def __init__(self, run: ActiveRun, calls: Sequence[CallState]) -> None:
        self._told: dict[CallId, ChangeBatch] = {
            state.call.id: ChangeBatch(_changes(run, state.unreported_outcome))
            for state in calls
            if state.unreported_outcome is not None and state.unreported_outcome.result is None
        }

    def conflict(self, changes: Sequence[Change]) -> tuple[str, CallId] | None:
        """The key that these changes share with an earlier call's, and whose."""
        found = conflict_between([*self._told.values(), ChangeBatch(changes)])
        return None if found is None else (found.key, list(self._told)[found.first])

    def note(self, call_id: CallId, changes: Sequence[Change]) -> None:
        self._told[call_id] = ChangeBatch(changes)

    def kept_for(self, state: CallState) -> UnreportedOutcome | None:
        """What has to outlive this process, for the calls behind this one."""
        told = self._told.get(state.call.id)
        return None if told is None else UnreportedOutcome(None, updates_of(told.changes))


def apply_changes(
    run: ActiveRun, state: CallState, executed: Executed, beside: ParallelChanges | None
) -> Executed:
    """Change the state as the call wishes; a wish that can't be had is told in its result."""
    if not executed.changes:
        return executed
    if beside is not None and (conflict := beside.conflict(executed.changes)) is not None:
        key, other = conflict
        log.warning("state_conflict", key=key, call_id=state.call.id, winner=other)
        return _without_changes(
            executed,
            f"Its changes to the state were dropped: call {other}, which ran at the same time,"
            f" has changed {key!r}.",
            state_conflict={"key": key, "with": other},
        )
    try:
        committed = run.state.commit(ChangeBatch(executed.changes))
    except Exception as error:
        log.warning("state_update_failed", call_id=state.call.id, exc_info=True)
        reason = run.redact(str(error))
        return _without_changes(
            executed, f"Its changes to the state were dropped: {reason}", state_error=reason
        )
    if beside is not None:
        beside.note(state.call.id, executed.changes)
    if not committed.refused:
        return executed
    reasons = {each.change.key.name: each.reason for each in committed.refused}
    log.warning("state_update_refused", call_id=state.call.id, reasons=reasons)
    sentence = "; ".join(f"{key}: {reason}" for key, reason in reasons.items())
    note = f"The state refused some of its changes: {sentence}"
    return Executed(_noted(executed.result, note).with_metadata(state_refused=reasons))


def updates_of(changes: Sequence[Change]) -> tuple[tuple[str, Json], ...]:
    """Changes as they can be kept: what tools ask for is JSON."""
    return tuple((change.key.name, change.update) for change in changes)


def executed_before(run: ActiveRun, state: CallState, result: ToolResult) -> Executed:
    """What a call came to whose worker was lost before it could be told."""
    return Executed(result, _changes(run, state.unreported_outcome))


def _changes(run: ActiveRun, kept: UnreportedOutcome | None) -> tuple[Change, ...]:
    changes = []
    for name, update in () if kept is None else kept.changes:
        key = run.state.key(name)
        if key is None:
            log.warning("state_key_gone", key=name)
        else:
            changes.append(Change(key, update))
    return tuple(changes)


def _without_changes(executed: Executed, note: str, **metadata: Json) -> Executed:
    return Executed(_noted(executed.result, note).with_metadata(**metadata))


def _noted(result: ToolResult, note: str) -> ToolResult:
    """The result with a sentence for the model; programs find it in the metadata."""
    return replace(result, message=f"{result.text}\n[{note}]")
