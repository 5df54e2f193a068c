"""Fences: no write of a worker that has lost its run or task changes a row of any table.

The statements of a worker are read from its modules, so each new one must be listed here.
"""

import ast
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

import app.workers
from app.clock import SystemClock, new_id
from app.commands.files.save_from_tool import save_from_tool
from app.commands.files.writing import NewFile
from app.commands.followups.background_tasks import emit_task_activity, finish_task
from app.commands.memories.kept_memory import DEFAULT_RULES
from app.commands.tool_owner import ToolOwner
from app.domain.checkpoints import Checkpoint
from app.domain.children.background_tasks import NewTask, TaskKey, task_failed
from app.domain.errors import OwnershipLost
from app.domain.events.step_events import StepEnd
from app.domain.events.tool_call_events import ActivitySnapshot
from app.domain.ids import AgentId, AgentVersion, CallId, InputId, TaskId, TicketKey, WorkerId
from app.domain.memories.memories import MemoryOwner, MemoryScope
from app.domain.memories.writes import MemoryWrite
from app.domain.runs.runs import NewRun, RunRecord
from app.domain.runs.terminations import Failed
from app.domain.structs import replace
from app.domain.tools.tool_calls import CallStatus, Effect
from app.events.fanout.hub import Hub
from app.events.fanout.notify import NotifyTransport
from app.events.fanout.relay import Relay
from app.events.transaction import EventTransactions, Publisher
from app.storage.checkpoints import batched, single
from app.storage.checkpoints.single import OwnershipMismatch
from app.storage.children import background_tasks
from app.storage.children.background_tasks import ClaimedTask
from app.storage.events import batched_append
from app.storage.files.file_bytes import FileBytes
from app.storage.files.saved_files import SavingCall
from app.storage.postgres.database import Database
from app.storage.runs import claims, runs
from app.storage.threads import inputs
from app.workers.run_inbox import RunInbox
from app.workers.tool_memory import StoredMemories
from tests.support.contents import contents
from tests.support.stored_runs import (
    TIMEOUT,
    admit,
    call_of,
    checkpoint_of,
    die,
    done,
    entries_of,
    flush_of,
    message,
    some_run,
    suspended,
    ticket_of,
    worker,
)

pytestmark = pytest.mark.anyio

NOW = SystemClock().now
LOST_RUN, LOST_TASK = 2, 1
"""The attempts of the worker that has lost both."""
_DECIDED = "UPDATE tickets SET status = 'decided', decision_id = 'yes', updated_at = now()"


@dataclass(frozen=True, slots=True)
class StaleOwnership:
    """A run with tickets, tasks and inputs, in the state of its new owner and of its old one."""

    database: Database
    outgoing: EventTransactions
    run: NewRun
    next_seq: int
    ticket: TicketKey
    stale: RunRecord
    stale_task: ClaimedTask

    def checkpoint(self, *texts: str, **more: object) -> Checkpoint:
        made = checkpoint_of(self.run, *texts, attempt=LOST_RUN, next_seq=self.next_seq)
        return replace(made, **more)  # type: ignore[arg-type]  # fields of a checkpoint

    @property
    def inbox(self) -> RunInbox:
        return RunInbox(self.database, self.outgoing, self.stale)


def new_task(run: NewRun) -> NewTask:
    return NewTask(
        id=TaskId(f"bg_{new_id()}"),
        agent_id=AgentId("clerk"),
        agent_version=AgentVersion("v1"),
        call_id=CallId("call-2"),
        tool_name="transfer",
        arguments={},
        effect=Effect.IDEMPOTENT,
        idempotency_key=f"{run.id}:0:call-2",
    )


@pytest.fixture
async def world(database: Database) -> StaleOwnership:
    pool, run = database.pool, some_run()
    lost = await worker(pool)
    assert await admit(pool, run, lost) is not None
    task, ticket = new_task(run), ticket_of(run)
    suspending = checkpoint_of(
        run,
        "I will",
        state=suspended(),
        calls=[call_of(run, CallStatus.SUSPENDED)],
        opened=[ticket],
    )
    async with database.transaction() as connection:
        await single.save(connection, replace(suspending, tasks=(task,)), at=NOW())
    await pool.execute(_DECIDED)
    key = TaskKey(run.tenant, task.id, 0)
    stale, claimed = [], []
    for owner in (lost, await worker(pool)):
        one = await claims.claim(pool, run.tenant, run.thread_id, run.id, owner, TIMEOUT)
        other = await background_tasks.claim(pool, key, owner, TIMEOUT)
        assert one is not None
        assert other is not None
        stale.append(one)
        claimed.append(other)
        await die(pool, lost)
    waiting = [(InputId(new_id()), message("one more thing"))]
    async with database.transaction() as connection:
        await inputs.queue(connection, run.tenant, run.thread_id, run.id, waiting)
        await background_tasks.send_message(connection, run.tenant, task.id, "hurry", "a key")
    assert (stale[0].record.attempt, claimed[0].task.attempt) == (LOST_RUN, LOST_TASK)
    hub = Hub()
    publisher = Publisher(
        hub, Relay(database, hub, WorkerId(new_id()), NotifyTransport(database), SystemClock())
    )
    return StaleOwnership(
        database,
        EventTransactions(database, publisher, SystemClock()),
        run,
        stale[1].next_message_seq,
        ticket.id,
        stale[0].record,
        claimed[0],
    )


# --- each statement, by a worker that has lost its run or task ------------------------------------


async def _flush(world: StaleOwnership) -> None:
    lost = flush_of(world.run, "hello", attempt=LOST_RUN)
    assert await batched_append.flush(world.database.pool, [lost], NOW()) == {}
    assert await batched_append.still_owned(world.database.pool, [lost]) == set()


async def _checkpoint(world: StaleOwnership) -> None:
    writes = [
        world.checkpoint("Hi", applied=(world.ticket,), thread_state={"mood": "bad"}),
        world.checkpoint(calls=(call_of(world.run, CallStatus.RUNNING),)),
        world.checkpoint(calls_settled=True),
        world.checkpoint("Bye", state=done(), calls_settled=True),
    ]
    for write in writes:
        entries = entries_of(StepEnd())
        assert await batched.checkpoint(world.database.pool, [(write, entries)], NOW()) == {}


async def _save(world: StaleOwnership) -> None:
    broken = replace(done(), termination=Failed("internal_error", "broken"))
    writes = [
        world.checkpoint("Hi", applied=(world.ticket,), tasks=(new_task(world.run),)),
        world.checkpoint(state=suspended(), opened=(ticket_of(world.run, "another"),)),
        world.checkpoint("Bye", state=broken, calls_settled=True),
    ]
    for write in writes:
        async with world.database.transaction() as connection:
            assert isinstance(await single.save(connection, write, at=NOW()), OwnershipMismatch)


async def _enter_log(world: StaleOwnership) -> None:
    with pytest.raises(OwnershipLost):
        await world.inbox.enter_log(world.next_seq)


async def _release(world: StaleOwnership) -> None:
    run = world.run
    async with world.database.transaction() as connection:
        assert not await runs.release(connection, run.tenant, run.id, LOST_RUN, failed=True)


async def _cancel_task(world: StaleOwnership) -> None:
    with pytest.raises(OwnershipLost):
        await world.inbox.cancel(world.stale_task.task.id)


async def _send_to_task(world: StaleOwnership) -> None:
    with pytest.raises(OwnershipLost):
        await world.inbox.send(world.stale_task.task.id, "stop", "another key")


async def _end_task(world: StaleOwnership) -> None:
    await _cancel_task(world)
    assert not await finish_task(world.outgoing, world.stale_task, task_failed("broken"))


async def _release_task(world: StaleOwnership) -> None:
    async with world.database.transaction() as connection:
        assert not await background_tasks.release(connection, world.stale_task.key)


async def _read_messages(world: StaleOwnership) -> None:
    assert await background_tasks.read_messages(world.database.pool, world.stale_task.key, 0) == []


async def _pieces() -> AsyncIterator[bytes]:
    yield b"a report"


async def _save_file(world: StaleOwnership) -> None:
    run, task = world.run, world.stale_task
    call = SavingCall(CallId("call-2"), f"{run.id}:0:call-2")
    for fence in (LOST_RUN, task.key):
        owner = ToolOwner(run.tenant, run.id, run.thread_id, fence)
        with pytest.raises(OwnershipLost):
            await save_from_tool(
                FileBytes(world.database.pool),
                world.outgoing,
                owner,
                call,
                NewFile("report.txt", None),
                _pieces(),
                1_000,
            )


async def _write_memory(world: StaleOwnership) -> None:
    run, task = world.run, world.stale_task
    ann = MemoryOwner(MemoryScope.SUBJECT, "ann")
    for fence in (LOST_RUN, task.key):
        owner = ToolOwner(run.tenant, run.id, run.thread_id, fence)
        memories = StoredMemories(world.database, owner, DEFAULT_RULES)
        with pytest.raises(OwnershipLost):
            await memories.save(ann, _memory_write(run, "set"))
        with pytest.raises(OwnershipLost):
            await memories.delete(ann, _memory_write(run, "delete"))


def _memory_write(run: NewRun, operation: Literal["set", "delete"]) -> MemoryWrite:
    return MemoryWrite(
        agent_id=AgentId("clerk"),
        idempotency_key=f"{run.id}:0:call-2",
        operation=operation,
        key="colour",
        value="green",
    )


async def _show_activity(world: StaleOwnership) -> None:
    shown = [ActivitySnapshot("call-2", "progress", {"at": 0.5}, True)]
    await emit_task_activity(world.outgoing, world.stale_task, shown)


FENCED: Mapping[str, Callable[[StaleOwnership], Awaitable[None]]] = {
    "batched_append.flush": _flush,
    "batched.checkpoint": _checkpoint,
    "single.save": _save,
    "inputs.enter_log": _enter_log,
    "runs.release": _release,
    "background_tasks.end": _end_task,
    "background_tasks.is_owned": _show_activity,
    "background_tasks.read_messages": _read_messages,
    "background_tasks.release": _release_task,
    "background_tasks.send_message": _send_to_task,
    "saved_files.add": _save_file,
    "memories.put": _write_memory,
    "memories.remove": _write_memory,
}

READS, CLAIMS = "reads, or locks", "gets what has no living owner"
BEHIND, OWN, SWEEPS = "in the transaction of a fenced one, after it", "its own row", "the sweeper's"
KEEPS = "of runs that ended long ago"
UNFENCED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "cancel_requests.is_requested",
            "batched.is_batchable",
            "batched_append.find_committed",
            "batched_append.still_owned",
            "rules.for_calls",
            "runs.cancel_reason",
            "runs.get",
            "runs.lock",
            "background_tasks.get",
            "background_tasks.owned",
            "background_tasks.page",
            "tickets.of_run",
            "loading.load",
            "crash_evidence.evidence_of",
            "files.get",
            "files.get_all",
            "saved_files.find",
            "saved_files.next_number",
            "threads.lock",
            "blobs.chunk",
            "blobs.place_of",
            "memories.get",
            "memories.lock_owner",
            "memories.newest",
            "memories.used_by_others",
            "recall.most_relevant",
            "writes.is_recorded",
        ),
        READS,
    ),
    **dict.fromkeys(("claims.claim", "background_tasks.claim"), CLAIMS),
    **dict.fromkeys(
        (
            "child_runs.cancel",
            "child_runs.forward_messages",
            "deliveries.enqueue",
            "blobs.complete",
            "deliveries.enqueue_task",
            "files.add",
            "files.refer",
            "inputs.queue",
            "runs.count_task_ended",
            "writes.record",
            "deletions.add",
        ),
        BEHIND,
    ),
    **dict.fromkeys(("workers.heartbeat", "workers.remove", "workers.touch"), OWN),
    **dict.fromkeys(
        ("blobs.begin", "blobs.keep", "blobs.add_chunk", "blobs.discard"),
        "bytes of no file: deleted when the fenced write fails, else by retention",
    ),
    "cancel_requests.release": "only rows that name this worker as their owner",
    **dict.fromkeys(
        (
            "unattended.with_cancel_request",
            "deliveries.enqueue_followup",
            "idempotency.delete_old",
            "run_ends.overdue",
            "lost_followups.of_children",
            "unattended.may_sweep",
            "unattended.without_owner",
            "unattended.resumed",
            "unattended.past_rate_limit",
            "unattended.with_unnoticed_decision",
            "unattended.with_unread_input",
            "unattended.waiting_for_version",
            "background_tasks.without_owner",
            "workers.remove_dead",
        ),
        SWEEPS,
    ),
    **dict.fromkeys(
        (
            "deliveries.delete_log",
            "retention.save_cursor",
            "retention.delete_inputs",
            "signals.delete_old",
            "retention.delete_tasks",
            "retention.try_lock",
            "retention.merge_deltas",
            "retention.next_finished",
            "retention.prune_events",
            "feed.delete_old",
            "ledger.delete_old",
            "sums.sum_next_hour",
            "memories.delete_old",
            "blobs.delete_unused",
            "blobs.deleted",
            "blobs.forget",
            "files.delete_unreferred",
        ),
        KEEPS,
    ),
}
"""What needs no fence, and why."""


def _statements(source: Path) -> set[str]:
    """The functions of storage modules that a module uses."""
    tree = list(ast.walk(ast.parse(source.read_text())))
    modules = {
        name.asname or name.name
        for node in tree
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("app.storage")
        for name in node.names
    }
    return {
        f"{node.value.id}.{node.attr}"
        for node in tree
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
        and node.attr[0].islower()
    }


def test_every_statement_of_a_worker_is_listed_as_fenced_or_not() -> None:
    folder = Path(app.workers.__path__[0])
    sources = [
        *folder.rglob("*.py"),
        folder.parent / "events/group_commit.py",
        folder.parent / "commands/followups/background_tasks.py",
        folder.parent / "commands/files/save_from_tool.py",
        folder.parent / "commands/files/writing.py",
        folder.parent / "storage/files/chunk_stores.py",
        folder.parent / "storage/files/file_bytes.py",
        folder.parent / "commands/memories/from_tool.py",
        folder.parent / "commands/memories/kept_memory.py",
        folder.parent / "commands/tool_owner.py",
        *(folder.parent / "backends").rglob("*.py"),
    ]
    used = {name for source in sources for name in _statements(source)}
    assert used == FENCED.keys() | UNFENCED.keys()
    assert not FENCED.keys() & UNFENCED.keys()


@pytest.mark.parametrize("name", FENCED)
async def test_a_stale_attempt_changes_nothing_anywhere(world: StaleOwnership, name: str) -> None:
    before = await contents(world.database.pool)
    await FENCED[name](world)
    assert await contents(world.database.pool) == before
    assert all(
        before[table]
        for table in ("messages", "inputs", "tool_calls", "tickets", "tasks", "events")
    )


async def test_the_new_owners_attempt_passes_the_same_fences(world: StaleOwnership) -> None:
    """The same writes with the new attempt succeed, so only the fence stopped the others."""
    run, pool = world.run, world.database.pool
    write = replace(world.checkpoint("Hi", applied=(world.ticket,)), attempt=LOST_RUN + 1)
    assert set(await batched.checkpoint(pool, [(write, entries_of(StepEnd()))], NOW())) == {0}
    assert set(
        await batched_append.flush(pool, [flush_of(run, "hello", attempt=LOST_RUN + 1)], NOW())
    ) == {0}
    mine = TaskKey(run.tenant, world.stale_task.task.id, LOST_TASK + 1)
    assert await background_tasks.read_messages(pool, mine, 0) == ["hurry"]
    inbox = replace(world.inbox, record=replace(world.stale, attempt=LOST_RUN + 1))
    entered = await inbox.enter_log(world.next_seq + 1)
    assert [entry.message.text for entry in entered] == ["one more thing"]
