"""State changes of tools: applied together with their results, in the order of the calls.

Parallel calls all see the same state. If two of them change the same exclusive key, the earlier call
wins. The later call keeps its result, and the result names the dropped changes.
"""

from collections.abc import Sequence

import structlog

from app.domain.ids import CallId
from app.domain.json_values import Json
from app.domain.structs import replace
from app.domain.tools.tool_calls import CallState, ToolResult, UnreportedOutcome
from app.runtime.active_run import ActiveRun
from app.runtime.state import Change, ChangeBatch, conflict_between
from app.runtime.tool_calls.execute import Executed

log = structlog.get_logger(__name__)


class ParallelChanges:
    """The state changes of the parallel calls of one batch that were reported."""

    def __init__(self, run: ActiveRun, calls: Sequence[CallState]) -> None:
        self._reported: dict[CallId, ChangeBatch] = {
            state.call.id: ChangeBatch(_changes(run, state.unreported_outcome))
            for state in calls
            if state.unreported_outcome is not None and state.unreported_outcome.result is None
        }

    def conflict(self, changes: Sequence[Change]) -> tuple[str, CallId] | None:
        """The exclusive key that an earlier call changed, too, and that call's id."""
        found = conflict_between([*self._reported.values(), ChangeBatch(changes)])
        return None if found is None else (found.key, list(self._reported)[found.first])

    def record(self, call_id: CallId, changes: Sequence[Change]) -> None:
        self._reported[call_id] = ChangeBatch(changes)

    def outcome_of(self, state: CallState) -> UnreportedOutcome | None:
        """The changes to save with the call: calls behind it may conflict after a restart."""
        reported = self._reported.get(state.call.id)
        return None if reported is None else UnreportedOutcome(None, updates_of(reported.changes))


def apply_changes(
    run: ActiveRun, state: CallState, executed: Executed, parallel: ParallelChanges | None
) -> Executed:
    """Apply the call's state changes; its result names the refused ones."""
    if not executed.changes:
        return executed
    if parallel is not None and (conflict := parallel.conflict(executed.changes)) is not None:
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
    if parallel is not None:
        parallel.record(state.call.id, executed.changes)
    if not committed.refused:
        return executed
    reasons = {each.change.key.name: each.reason for each in committed.refused}
    log.warning("state_update_refused", call_id=state.call.id, reasons=reasons)
    sentence = "; ".join(f"{key}: {reason}" for key, reason in reasons.items())
    note = f"The state refused some of its changes: {sentence}"
    return Executed(_with_note(executed.result, note).with_metadata(state_refused=reasons))


def updates_of(changes: Sequence[Change]) -> tuple[tuple[str, Json], ...]:
    """Changes as JSON, to be stored."""
    return tuple((change.key.name, change.update) for change in changes)


def executed_before(run: ActiveRun, state: CallState, result: ToolResult) -> Executed:
    """The stored result of a call that an earlier activation didn't report."""
    return Executed(result, _changes(run, state.unreported_outcome))


def _changes(run: ActiveRun, kept: UnreportedOutcome | None) -> tuple[Change, ...]:
    changes = []
    for name, update in () if kept is None else kept.changes:
        key = run.state.key(name)
        if key is None:
            log.warning("state_key_missing", key=name)
        else:
            changes.append(Change(key, update))
    return tuple(changes)


def _without_changes(executed: Executed, note: str, **metadata: Json) -> Executed:
    return Executed(_with_note(executed.result, note).with_metadata(**metadata))


def _with_note(result: ToolResult, note: str) -> ToolResult:
    """The result with a sentence for the model; programs find it in the metadata."""
    return replace(result, message=f"{result.text}\n[{note}]")
