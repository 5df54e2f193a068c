"""Writes the rows of a run and of its tool calls for a checkpoint."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_never

from sqlalchemy import case, delete, func, update
from sqlalchemy.dialects.postgresql import insert

from app.domain.checkpoints import Checkpoint, CheckpointSaved
from app.domain.json_values import storable
from app.domain.runs.runs import Done, Running, RunRecord, Waiting, status_of
from app.domain.runs.terminations import termination_to_json
from app.domain.tools.tool_calls import CallStatus, outcome_to_json
from app.storage.postgres.database import Connection
from app.storage.tables import runs as run_table
from app.storage.tables import tool_calls


async def write_run(
    connection: Connection,
    checkpoint: Checkpoint,
    record: RunRecord,
    counters: CheckpointSaved,
    at: datetime,
) -> None:
    """Write the run's new status, usage and counters. The caller holds the run's lock."""
    state = checkpoint.state
    output = checkpoint.output.range
    values: dict[str, Any] = {
        "status": status_of(state).value,
        "losses": 0 if checkpoint.is_progress else record.losses,
        "steps": checkpoint.steps,
        "input_tokens": checkpoint.usage.input_tokens,
        "output_tokens": checkpoint.usage.output_tokens,
        "state": storable(checkpoint.run_state),
        "output_from": output.from_seq if output else None,
        "output_to": output.to_seq if output else None,
        "output_ids": list(checkpoint.output.message_ids),
        "unread_inputs": counters.unread_inputs,
        "open_tasks": counters.open_tasks,
        "updated_at": at,
    }
    if (inferred := checkpoint.inferred_input) is not None:
        values |= {
            "input_from": inferred.range.from_seq if inferred.range else None,
            "input_to": inferred.range.to_seq if inferred.range else None,
            "input_ids": list(inferred.trigger_message_ids),
        }
    match state:
        case Running():
            pass
        case Waiting(reason, message, until):
            values |= {
                "owner": None,
                "waiting_reason": reason.value,
                "waiting_message": message,
                "waiting_until": until,
            }
        case Done(termination, _, final_output, structured_output):
            values |= {
                "owner": None,
                "waiting_reason": None,
                "waiting_message": None,
                "waiting_until": None,
                "termination": storable(termination_to_json(termination)),
                # The time of this commit, as in the batched statement.
                "finished_at": at,
                "final_output": storable(final_output),
                "structured_output": storable(structured_output),
            }
        case _:
            assert_never(state)
    await connection.execute(
        update(run_table)
        .where(run_table.c.tenant == checkpoint.tenant, run_table.c.id == checkpoint.run_id)
        .values(values)
    )


async def write_calls(
    connection: Connection, checkpoint: Checkpoint, record: RunRecord, at: datetime
) -> None:
    """Write the calls of the open step, or delete them once all are done."""
    if checkpoint.calls_settled:
        await connection.execute(
            delete(tool_calls).where(
                tool_calls.c.tenant == checkpoint.tenant, tool_calls.c.run_id == checkpoint.run_id
            )
        )
        return
    owner = record.state.owner if isinstance(record.state, Running) else None
    rows: Sequence[dict[str, Any]] = [
        {
            "tenant": checkpoint.tenant,
            "run_id": checkpoint.run_id,
            "step_index": state.step_index,
            "call_id": state.call.id,
            "position": state.position,
            "name": state.call.name,
            "arguments": storable(state.call.arguments),
            "edited_arguments": storable(state.edited_arguments),
            "unreported_outcome": None
            if state.unreported_outcome is None
            else storable(outcome_to_json(state.unreported_outcome)),
            "status": state.status.value,
            "effect": state.effect.value,
            "idempotency_key": state.idempotency_key,
            "tool_digest": state.tool_digest,
            "attempt": checkpoint.attempt,
            "worker": owner if state.status is CallStatus.RUNNING else None,
            "started_at": at if state.status is CallStatus.RUNNING else None,
            "updated_at": at,
        }
        for state in checkpoint.calls
    ]
    if rows:
        statement = insert(tool_calls)
        new = statement.excluded
        await connection.execute_many(
            statement.on_conflict_do_update(
                index_elements=["tenant", "run_id", "step_index", "call_id"],
                set_={
                    "status": new.status,
                    "edited_arguments": new.edited_arguments,
                    "unreported_outcome": new.unreported_outcome,
                    "attempt": new.attempt,
                    "worker": func.coalesce(new.worker, tool_calls.c.worker),
                    "started_at": case(
                        (new.started_at.is_not(None), new.started_at),
                        else_=tool_calls.c.started_at,
                    ),
                    "updated_at": new.updated_at,
                },
            ),
            rows,
        )
