"""Group commit: writes the events and checkpoints of many runs in few commits.

There are two lanes, each with one commit at a time. What arrives during a commit goes into the next one: an
idle process commits each token at once, and a busy one commits many together. Deltas have their own lane, so
a checkpoint that waits for a lock never delays them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog

from app import telemetry
from app.clock import Clock, sleep, yield_to_loop
from app.domain.checkpoints import (
    Checkpoint,
    CheckpointAnswer,
    CheckpointSaved,
    PendingEvent,
    finish_as_saved,
)
from app.domain.errors import OwnershipLost
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import Waiting
from app.events.journal import Journal
from app.events.sse_encoding import EventBatch
from app.events.transaction import EventTransactions, Publisher
from app.storage.checkpoints import batched, single
from app.storage.checkpoints.batched import CheckpointWritten
from app.storage.checkpoints.single import OwnershipMismatch
from app.storage.events import batched_append
from app.storage.events.batched_append import Flush
from app.storage.events.event_log import EventEntry, entry
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.retrying import retry_while_unavailable

LOCKED_RETRY_SECONDS = 0.005
STEP_START_DELAY_SECONDS = 0.02
"""How long a `step_start` waits for the step's next event, to share its commit."""
UNAVAILABLE_RETRY_SECONDS = 0.25

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Save:
    journal: Journal
    checkpoint: Checkpoint
    taken: list[PendingEvent]
    entries: list[EventEntry]
    """The events of its commit: the pending ones, then the checkpoint's own."""
    answer: "asyncio.Future[CheckpointAnswer]"
    published_before: list[EventEntry] = field(default_factory=list)
    """The same, with the events that only the commit knows."""

    def answer_waiters(self, answer: CheckpointAnswer | Exception) -> None:
        if self.answer.done():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class GroupCommit:
    def __init__(
        self, database: Database, publisher: Publisher, outgoing: EventTransactions, clock: Clock
    ) -> None:
        self._pool = database.pool
        self._publisher = publisher
        self._outgoing = outgoing
        self._clock = clock
        self._last_time = datetime.min.replace(tzinfo=UTC)
        self._dirty: dict[int, Journal] = {}
        self._has_events = asyncio.Event()
        self._saves: list[_Save] = []
        self._has_saves = asyncio.Event()
        self._unanswered: set[_Save] = set()

    def journal(
        self,
        tenant: Tenant,
        thread_id: ThreadId,
        run_id: RunId,
        attempt: int,
        on_lost: Callable[[], None],
    ) -> Journal:
        """The journal of one attempt; `on_lost` is called when another worker owns the run."""
        return Journal(
            tenant=tenant,
            thread_id=thread_id,
            run_id=run_id,
            attempt=attempt,
            wake=self._wake,
            wake_soon=self._wake_soon,
            save=self._enqueue_save,
            on_lost=on_lost,
        )

    @property
    def transactions(self) -> EventTransactions:
        """The transactions for writes of a run besides its journal."""
        return self._outgoing

    def publish(self, batch: EventBatch) -> None:
        """Publish events that a claim has committed."""
        self._publisher.publish(batch)

    async def run(self) -> None:
        """Run both lanes until cancelled; then unanswered saves get `OwnershipLost`."""
        try:
            async with asyncio.TaskGroup() as lanes:
                lanes.create_task(self._flush_lane())
                lanes.create_task(self._checkpoint_lane(lanes))
        finally:
            for save in self._unanswered:
                save.answer_waiters(OwnershipLost(save.checkpoint.run_id))

    def _next_time(self) -> datetime:
        """A strictly increasing timestamp: `find_committed` finds a commit of unknown outcome by it."""
        now = self._clock.now()
        if timedelta(0) <= self._last_time - now < timedelta(seconds=1):
            now = self._last_time + timedelta(microseconds=1)
        self._last_time = now
        return now

    # --- deltas -------------------------------------------------------------------------------

    def _wake(self, journal: Journal) -> None:
        self._dirty[id(journal)] = journal
        self._has_events.set()

    def _wake_soon(self, journal: Journal) -> None:
        asyncio.get_running_loop().call_later(STEP_START_DELAY_SECONDS, self._wake, journal)

    async def _flush_lane(self) -> None:
        while True:
            await self._has_events.wait()
            if self._unanswered or len(self._dirty) > 1:
                # Postgres is busy with other runs. Runs that have their whole answer can now save a checkpoint. It
                # writes their events as well, so they need no flush.
                await yield_to_loop()
            self._has_events.clear()
            await self._flush_dirty()

    async def _flush_dirty(self) -> None:
        journals = [journal for journal in self._dirty.values() if not journal.flush_blocked]
        self._dirty.clear()
        taken = [(journal, events) for journal in journals if (events := journal.take())]
        if taken:
            await self._flush(taken)

    async def _flush(self, taken: Sequence[tuple[Journal, list[PendingEvent]]]) -> None:
        for journal, _ in taken:
            journal.begin_flush()
        try:
            await self._flush_together(taken)
        except Exception as error:  # noqa: BLE001  one bad row must not fail the other runs
            log.warning("flush_group_split", error=repr(error), runs=len(taken))
            if len(taken) > 1:
                for one in taken:
                    await self._flush([one])
            else:
                taken[0][0].abandon()
        finally:
            for journal, _ in taken:
                journal.end_flush()

    async def _flush_together(self, taken: Sequence[tuple[Journal, list[PendingEvent]]]) -> None:
        at = self._next_time()
        flushes = []
        for journal, events in taken:
            entries = [entry(one) for one in events]
            flushes.append(
                Flush(journal.tenant, journal.thread_id, journal.run_id, journal.attempt, entries)
            )
        with telemetry.flush_seconds.time():
            written = await self._write_flushes(flushes, at)
        telemetry.flush_events.observe(sum(len(flush.entries) for flush in flushes))
        missing = [index for index in range(len(flushes)) if index not in written]
        owned = set(missing)
        if missing:
            owned = await self._still_owned([flushes[index] for index in missing], missing)
        for index, (journal, events) in enumerate(taken):
            if index in written:
                self._publish(flushes[index], written[index], at)
            elif index in owned:
                journal.put_back(events)
                asyncio.get_running_loop().call_later(LOCKED_RETRY_SECONDS, self._wake, journal)
            else:
                journal.abandon()

    async def _write_flushes(self, flushes: Sequence[Flush], at: datetime) -> dict[int, int]:
        """Write exactly once, also if a connection is lost during the commit and its outcome unknown."""
        in_doubt = False
        while True:
            try:
                if in_doubt:
                    keys = [(flush.tenant, flush.thread_id, flush.run_id) for flush in flushes]
                    if written := await batched_append.find_committed(self._pool, keys, at):
                        return written
                return await batched_append.flush(self._pool, flushes, at)
            except DATABASE_UNAVAILABLE as error:
                log.debug("flush_retried", error=type(error).__name__, runs=len(flushes))
                in_doubt = True
                await sleep(UNAVAILABLE_RETRY_SECONDS)

    async def _still_owned(self, flushes: Sequence[Flush], indexes: Sequence[int]) -> set[int]:
        held = await retry_while_unavailable(
            lambda: batched_append.still_owned(self._pool, flushes)
        )
        return {indexes[position] for position in held}

    def _publish(self, flush: Flush, first_seq: int, at: datetime) -> None:
        self._publisher.publish(
            EventBatch(flush.tenant, flush.thread_id, flush.run_id, first_seq, flush.entries, at)
        )

    # --- checkpoints --------------------------------------------------------------------------

    def _enqueue_save(
        self, journal: Journal, checkpoint: Checkpoint
    ) -> "asyncio.Future[CheckpointAnswer]":
        answer: asyncio.Future[CheckpointAnswer] = asyncio.get_running_loop().create_future()
        taken = journal.take()
        entries = [entry(one) for one in (*taken, *checkpoint.pending_events)]
        save = _Save(journal, checkpoint, taken, entries, answer)
        self._unanswered.add(save)
        answer.add_done_callback(lambda _: self._unanswered.discard(save))
        self._saves.append(save)
        self._has_saves.set()
        return answer

    async def _checkpoint_lane(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._has_saves.wait()
            self._has_saves.clear()
            await self._save_all(tasks)

    async def _save_all(self, tasks: asyncio.TaskGroup) -> None:
        saves, self._saves = self._saves, []
        batchable = [save for save in saves if batched.is_batchable(save.checkpoint)]
        for save in saves:
            if not batched.is_batchable(save.checkpoint):
                tasks.create_task(self._save_alone(save))
        if batchable:
            for left in await self._save_together(batchable):
                tasks.create_task(self._save_alone(left))

    async def _save_together(self, saves: Sequence[_Save]) -> list[_Save]:
        """Commit all in one statement; returns those that need a transaction of their own."""
        at = self._next_time()
        try:
            with telemetry.checkpoint_seconds.time():
                written = await batched.checkpoint(
                    self._pool, [(save.checkpoint, save.entries) for save in saves], at
                )
        except DATABASE_UNAVAILABLE:
            await sleep(UNAVAILABLE_RETRY_SECONDS)
            written = {
                i: _unknown_outcome(seq)
                for i, seq in (await self._find_committed(saves, at)).items()
            }
        except Exception as error:  # noqa: BLE001  one bad row must not fail the other runs
            log.warning("checkpoint_group_split", error=repr(error), runs=len(saves))
            return list(saves)
        for index, save in enumerate(saves):
            if index in written:
                self._saved(save, written[index], at)
        return [save for index, save in enumerate(saves) if index not in written]

    async def _save_alone(self, save: _Save) -> None:
        """Save one checkpoint in its own transaction, retried during an outage."""
        while True:
            at = self._next_time()
            try:
                with telemetry.checkpoint_seconds.time():
                    answer = await self._save_in_transaction(save, at)
                if not isinstance(answer, CheckpointSaved):
                    # Only now: if the connection is lost during the commit, the save is repeated.
                    save.journal.put_back(save.taken)
                save.answer_waiters(answer)
                return
            except DATABASE_UNAVAILABLE:
                await sleep(UNAVAILABLE_RETRY_SECONDS)
                committed = await self._find_committed([save], at)
                if committed:
                    self._saved(save, _unknown_outcome(committed[0]), at)
                    return
            except OwnershipLost as lost:
                save.answer_waiters(lost)
                return
            except Exception as error:  # noqa: BLE001  the caller gets it, and fails the run
                save.journal.put_back(save.taken)
                save.answer_waiters(error)
                return

    async def _save_in_transaction(self, save: _Save, at: datetime) -> CheckpointAnswer:
        checkpoint = save.checkpoint
        async with self._outgoing.transaction(at, by_key=True) as transaction:
            outcome = await single.save(transaction.connection, checkpoint, at=at)
            if isinstance(outcome, OwnershipMismatch):
                save.journal.abandon()
                raise OwnershipLost(checkpoint.run_id)
            if not isinstance(outcome, CheckpointSaved):
                return outcome
            save.published_before = _with_events_of_commit(save, outcome)
            transaction.emit_encoded(
                checkpoint.tenant, checkpoint.thread_id, checkpoint.run_id, save.published_before
            )
        return outcome

    async def _find_committed(self, saves: Sequence[_Save], at: datetime) -> dict[int, int]:
        keys = [
            (save.checkpoint.tenant, save.checkpoint.thread_id, save.checkpoint.run_id)
            for save in saves
        ]
        return await retry_while_unavailable(
            lambda: batched_append.find_committed(self._pool, keys, at)
        )

    def _saved(self, save: _Save, written: CheckpointWritten, at: datetime) -> None:
        journal = save.journal
        entries = save.published_before or save.entries
        if entries:
            self._publisher.publish(
                EventBatch(
                    journal.tenant,
                    journal.thread_id,
                    journal.run_id,
                    written.first_seq,
                    entries,
                    at,
                )
            )
        save.answer_waiters(
            CheckpointSaved(written.unread_inputs, written.open_tasks, is_paused=written.is_paused)
        )


def _unknown_outcome(first_seq: int) -> CheckpointWritten:
    """A committed checkpoint whose reply was lost. The run counts as paused, because that isn't known: the
    next step border reads its row."""
    return CheckpointWritten(first_seq, is_paused=True)


def _with_events_of_commit(save: _Save, saved: CheckpointSaved) -> list[EventEntry]:
    """Adds what only the commit knows. A `run_finish` stays the last event."""
    entries = save.entries
    if isinstance(save.checkpoint.state, Waiting) and save.checkpoint.pending_events:
        finish = finish_as_saved(save.checkpoint.pending_events[-1], saved)
        entries = [*entries[:-1], entry(finish)]
    if saved.rolled_back is not None:
        return [*entries[:-1], entry(PendingEvent(saved.rolled_back, None)), entries[-1]]
    if saved.pause_requested is not None:
        return [entry(PendingEvent(saved.pause_requested, None)), *entries]
    return entries
