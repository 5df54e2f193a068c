"""A suspension that waits for people is one statement, and writes the same rows as a transaction."""

from functools import partial
from typing import Any

import pytest

from app.clock import SystemClock
from app.domain.checkpoints import Checkpoint, CheckpointSaved
from app.domain.runs.runs import NewRun, Waiting, WaitingReason
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.tool_calls import CallStatus
from app.storage.checkpoints import batched, single
from app.storage.postgres.database import Database, RawPool
from app.storage.tickets import decisions
from tests.support.open_tickets import open_tickets
from tests.support.rows import sizes
from tests.support.stored_runs import (
    call_of,
    checkpoint_of,
    deltas,
    done,
    running,
    suspended,
    ticket_of,
)

pytestmark = pytest.mark.anyio

NOW = SystemClock().now
_ROWS = {
    "runs": "status, owner, attempt, waiting_reason, waiting_message, waiting_until, steps, state, output_ids",
    "threads": "next_message_seq, open_run_id = latest_run_id AS is_open",
    "tickets": "ticket_id, kind, call_id, step_index, tool_name, arguments, args_digest, resume_mode, "
    "allowed_actions, response_schema, reason, message, evidence, status, expires_at, on_expiry, remind_at, "
    "approvers, applied_at",
    "ticket_feed": "kind, decision_id",
    "messages": "seq, role, content",
    "tool_calls": "call_id, status, worker, attempt",
    "event_heads": "next_seq, run_id, attempt",
}


def suspension_of(run: NewRun, **more: Any) -> Checkpoint:
    return checkpoint_of(
        run,
        "may I?",
        state=suspended(),
        calls=[call_of(run, CallStatus.SUSPENDED)],
        opened=[ticket_of(run)],
        **more,
    )


async def rows_of(pool: RawPool, run: NewRun) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for table, columns in _ROWS.items():
        key, id = {
            "runs": ("id", run.id),
            "threads": ("id", run.thread_id),
            "event_heads": ("thread_id", run.thread_id),
            "messages": ("thread_id", run.thread_id),
            "tickets": ("run_id", run.id),
            "tool_calls": ("run_id", run.id),
        }.get(table, ("", ""))
        where = f"{key} = $1" if key else "ticket IN (SELECT id FROM tickets WHERE run_id = $1)"
        found[table] = [
            dict(row)
            for row in await pool.fetch(
                f"SELECT {columns} FROM {table} WHERE {where}",
                id or run.id,
            )
        ]
    return found


async def save_alone(database: Database, checkpoint: Checkpoint) -> None:
    async with database.transaction() as connection:
        outcome = await single.save(connection, checkpoint, at=NOW())
        assert isinstance(outcome, CheckpointSaved)


async def test_a_batch_and_a_transaction_write_the_same_suspension(database: Database) -> None:
    together, alone = await running(database.pool), await running(database.pool)
    assert batched.is_batchable(suspension_of(together))
    written = await batched.checkpoint(database.pool, [(suspension_of(together), [])], NOW())
    assert set(written) == {0}
    await save_alone(database, suspension_of(alone))
    rows = await rows_of(database.pool, together)
    assert rows == await rows_of(database.pool, alone)
    [run] = rows["runs"]
    assert (run["status"], run["owner"], run["waiting_reason"]) == (
        "waiting",
        None,
        "tool_permission",
    )
    assert [each["kind"] for each in rows["ticket_feed"]] == ["opened"]


async def test_a_batch_writes_suspensions_beside_other_checkpoints(database: Database) -> None:
    waits, ends, goes_on = [await running(database.pool) for _ in range(3)]
    writes = [
        (checkpoint_of(goes_on, "more"), deltas("a")),
        (suspension_of(waits), deltas("b")),
        (checkpoint_of(ends, "end", state=done()), deltas("c")),
    ]
    assert set(await batched.checkpoint(database.pool, writes, NOW())) == {0, 1, 2}
    statuses = await database.pool.fetch("SELECT id, status, owner IS NULL AS free FROM runs")
    assert {row["id"]: (row["status"], row["free"]) for row in statuses} == {
        goes_on.id: ("running", False),
        waits.id: ("waiting", True),
        ends.id: ("done", True),
    }
    assert await database.pool.fetchval("SELECT run_id FROM tickets") == waits.id


@pytest.mark.parametrize(
    "change",
    [
        "cancel_requested_at = now(), cancel_requested_by = 'x'",
        "pause_requested_at = now(), pause_requested_by = 'x'",
        "open_tasks = 1",
        "attempt = attempt + 1",
    ],
)
async def test_a_batch_leaves_a_suspension_to_a_transaction(
    database: Database, change: str
) -> None:
    run = await running(database.pool)
    await database.pool.execute(f"UPDATE runs SET {change}")
    before = await sizes(database.pool)
    assert await batched.checkpoint(database.pool, [(suspension_of(run), [])], NOW()) == {}
    assert await sizes(database.pool) == before


async def test_a_batch_never_suspends_a_run_whose_ticket_is_decided(database: Database) -> None:
    """Before, during and after the decision's commit the ticket is unsettled, until the run applies it."""
    run = await running(database.pool)
    earlier = ticket_of(run, "earlier")
    decision = Decision(
        decision_id="d",
        answer=DecisionAnswer(action=Action.APPROVE),
        subject="someone",
        at=NOW(),
    )
    suspend = partial(batched.checkpoint, database.pool, [(suspension_of(run), [])])
    async with database.transaction() as connection:
        await open_tickets(connection, run.tenant, [earlier])
    assert await suspend(NOW()) == {}
    async with database.transaction() as connection:
        await decisions.decide(connection, run.tenant, earlier.id, decision)
        assert await suspend(NOW()) == {}
    assert await suspend(NOW()) == {}
    applied = suspension_of(run, applied=[earlier.id])
    assert set(await batched.checkpoint(database.pool, [(applied, [])], NOW())) == {0}


async def test_only_waits_for_people_are_batched(database: Database) -> None:
    run = await running(database.pool)
    batchable = {
        reason: batched.is_batchable(checkpoint_of(run, state=Waiting(reason, "")))
        for reason in WaitingReason
    }
    assert {reason for reason, found in batchable.items() if found} == {
        WaitingReason.TOOL_PERMISSION,
        WaitingReason.USER_INPUT,
    }
    timed = Waiting(WaitingReason.USER_INPUT, "", NOW())
    assert not batched.is_batchable(checkpoint_of(run, state=timed))
    assert not batched.is_batchable(checkpoint_of(run, opened=[ticket_of(run)]))
    assert ticket_of(run).kind is not TicketKind.CHILD
