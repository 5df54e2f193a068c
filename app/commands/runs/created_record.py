"""The record of a run that was just created, without reading it back, and its `run_created` event."""

from datetime import datetime

from app.domain.events.run_events import RunCreated
from app.domain.runs.runs import (
    MessageInput,
    MessageOutput,
    NewRun,
    Running,
    RunRecord,
    RunState,
    RunStatus,
    Usage,
)
from app.domain.threads.messages import MessageRange


def created_event(run: NewRun, status: RunStatus, *, position: int) -> RunCreated:
    ids = [str(message.id) for message in run.messages] or run.request["input_message_ids"]
    return RunCreated(run.agent_id, status.value, position, ids)


def record_as_written(
    run: NewRun, state: RunState, at: datetime, events_from: int, *, first_seq: int | None
) -> RunRecord:
    """Build the record with the values that the statement has written."""
    executes = isinstance(state, Running)
    consumed = (
        run.input
        if first_seq is None
        else MessageInput(
            MessageRange.of(first_seq, first_seq + len(run.messages) - 1),
            tuple(message.id for message in run.messages),
        )
    )
    return RunRecord(
        tenant=run.tenant,
        id=run.id,
        thread_id=run.thread_id,
        thread_key=run.thread_key,
        agent_id=run.agent_id,
        agent_version=run.agent_version,
        state=state,
        lineage=run.lineage,
        request=run.request,
        input=consumed,
        output=MessageOutput(),
        steps=0,
        usage=Usage(),
        run_state=None,
        metadata=run.metadata,
        started_by=run.started_by,
        dispatch_id=None,
        attempt=1 if executes else 0,
        losses=0,
        cancel_requested_at=None,
        created_at=at,
        started_at=at if executes else None,
        updated_at=at,
        events_from=events_from,
    )
