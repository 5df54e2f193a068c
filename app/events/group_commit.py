"""Group commit: what many runs say and save goes to Postgres in few commits.

Two lanes, each one commit at a time; what arrives while one is under way goes into the next, so an
idle system adds one commit to a token and a busy one writes few rows. Deltas have a lane of their own:
a checkpoint that waits for a lock never stops anybody's tokens.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import structlog

from app import telemetry
from app.clock import Clock, sleep
from app.domain.checkpoints import Checkpoint, CheckpointAnswer, CheckpointSaved, PendingEvent
from app.domain.errors import OwnershipLost
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.runs.runs import Running
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

LOCKED_RETRY_SECONDS = 0.005
STEP_START_DELAY_SECONDS = 0.02
"""So long a step that begins waits for the first thing that is said in it, to share its commit."""
UNAVAILABLE_RETRY_SECONDS = 0.25

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Save:
    journal: Journal
    checkpoint: Checkpoint
    taken: list[PendingEvent]
    entries: list[EventEntry]
    """What is said with it, its own events last."""
    answer: "asyncio.Future[CheckpointAnswer]"
    published_before: list[EventEntry] = field(default_factory=list)
    """The same, with what only the commit knows."""

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
        self._last = datetime.min.replace(tzinfo=UTC)
        self._dirty: dict[int, Journal] = {}
        self._speech = asyncio.Event()
        self._saves: list[_Save] = []
        self._saving = asyncio.Event()
        self._unanswered: set[_Save] = set()

    def journal(
        self,
        tenant: Tenant,
        thread_id: ThreadId,
        run_id: RunId,
        attempt: int,
        on_lost: Callable[[], None],
    ) -> Journal:
        """A voice for one attempt at a run; `on_lost` is called when it isn't heard any more."""
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
        """The way to speak for commands of a run beside its journal."""
        return self._outgoing

    def publish(self, batch: EventBatch) -> None:
        """Publish what was committed elsewhere, by a claim."""
        self._publisher.publish(batch)

    async def run(self) -> None:
        """Both lanes, until cancelled; then nobody is left waiting for an answer."""
        try:
            async with asyncio.TaskGroup() as lanes:
                lanes.create_task(self._flush_lane())
                lanes.create_task(self._checkpoint_lane(lanes))
        finally:
            for save in self._unanswered:
                save.answer_waiters(OwnershipLost(save.checkpoint.run_id))

    def _instant(self) -> datetime:
        """Another one for each commit, also when the clock stands still: what landed is told by it."""
        now = self._clock.now()
        if timedelta(0) <= self._last - now < timedelta(seconds=1):
            now = self._last + timedelta(microseconds=1)
        self._last = now
        return now

    # --- deltas -------------------------------------------------------------------------------

    def _wake(self, journal: Journal) -> None:
        self._dirty[id(journal)] = journal
        self._speech.set()

    def _wake_soon(self, journal: Journal) -> None:
        asyncio.get_running_loop().call_later(STEP_START_DELAY_SECONDS, self._wake, journal)

    async def _flush_lane(self) -> None:
        while True:
            await self._speech.wait()
            self._speech.clear()
            await self._flush_dirty()

    async def _flush_dirty(self) -> None:
        journals = [journal for journal in self._dirty.values() if not journal.held]
        self._dirty.clear()
        taken = [(journal, said) for journal in journals if (said := journal.take())]
        if taken:
            await self._flush(taken)

    async def _flush(self, taken: Sequence[tuple[Journal, list[PendingEvent]]]) -> None:
        for journal, _ in taken:
            journal.begin_flush()
        try:
            await self._flush_together(taken)
        except Exception as error:  # noqa: BLE001  one bad row must not silence its neighbours
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
        at = self._instant()
        flushes = []
        for journal, said in taken:
            entries = [entry(one) for one in said]
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
        for index, (journal, said) in enumerate(taken):
            if index in written:
                self._publish(flushes[index], written[index], at)
            elif index in owned:
                journal.put_back(said)
                asyncio.get_running_loop().call_later(LOCKED_RETRY_SECONDS, self._wake, journal)
            else:
                journal.abandon()

    async def _write_flushes(self, flushes: Sequence[Flush], at: datetime) -> dict[int, int]:
        """Write once, also when a connection dies over the commit and nobody knows if it landed."""
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
        while True:
            try:
                held = await batched_append.still_owned(self._pool, flushes)
                return {indexes[position] for position in held}
            except DATABASE_UNAVAILABLE:
                await sleep(UNAVAILABLE_RETRY_SECONDS)

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
        self._saving.set()
        return answer

    async def _checkpoint_lane(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._saving.wait()
            self._saving.clear()
            await self._save_all(tasks)

    async def _save_all(self, tasks: asyncio.TaskGroup) -> None:
        saves, self._saves = self._saves, []
        usual = [save for save in saves if single.is_batchable(save.checkpoint)]
        for save in saves:
            if not single.is_batchable(save.checkpoint):
                tasks.create_task(self._save_alone(save))
        if usual:
            for left in await self._save_together(usual):
                tasks.create_task(self._save_alone(left))

    async def _save_together(self, saves: Sequence[_Save]) -> list[_Save]:
        """One commit for all; returns what has to go its own way."""
        at = self._instant()
        try:
            with telemetry.checkpoint_seconds.time():
                written = await batched.checkpoint(
                    self._pool, [(save.checkpoint, save.entries) for save in saves], at
                )
        except DATABASE_UNAVAILABLE:
            await sleep(UNAVAILABLE_RETRY_SECONDS)
            written = {
                i: _in_doubt(seq) for i, seq in (await self._find_committed(saves, at)).items()
            }
        except Exception as error:  # noqa: BLE001  one bad row must not fail its neighbours
            log.warning("checkpoint_group_split", error=repr(error), runs=len(saves))
            return list(saves)
        for index, save in enumerate(saves):
            if index in written:
                self._saved(save, written[index], at)
        return [save for index, save in enumerate(saves) if index not in written]

    async def _save_alone(self, save: _Save) -> None:
        """One transaction of its own, retried for as long as the database is away."""
        while True:
            at = self._instant()
            try:
                with telemetry.checkpoint_seconds.time():
                    answer = await self._save_in_transaction(save, at)
                if not isinstance(answer, CheckpointSaved):
                    # Only now: a connection that dies over the commit has it asked again.
                    save.journal.put_back(save.taken)
                save.answer_waiters(answer)
                return
            except DATABASE_UNAVAILABLE:
                await sleep(UNAVAILABLE_RETRY_SECONDS)
                landed = await self._find_committed([save], at)
                if landed:
                    self._saved(save, _in_doubt(landed[0]), at)
                    return
            except OwnershipLost as lost:
                save.answer_waiters(lost)
                return
            except Exception as error:  # noqa: BLE001  the run that asked gets it, and ends by it
                save.journal.put_back(save.taken)
                save.answer_waiters(error)
                return

    async def _save_in_transaction(self, save: _Save, at: datetime) -> CheckpointAnswer:
        checkpoint = save.checkpoint
        async with self._outgoing.transaction(at) as transaction:
            outcome = await single.save(transaction.connection, checkpoint, at=at)
            if isinstance(outcome, OwnershipMismatch):
                save.journal.abandon()
                raise OwnershipLost(checkpoint.run_id)
            if not isinstance(outcome, CheckpointSaved):
                return outcome
            if not isinstance(checkpoint.state, Running):
                await single.release_event_head(transaction.connection, checkpoint)
            save.published_before = _with_events_of_commit(save.entries, outcome)
            transaction.emit_encoded(
                checkpoint.tenant, checkpoint.thread_id, checkpoint.run_id, save.published_before
            )
        return outcome

    async def _find_committed(self, saves: Sequence[_Save], at: datetime) -> dict[int, int]:
        keys = [
            (save.checkpoint.tenant, save.checkpoint.thread_id, save.checkpoint.run_id)
            for save in saves
        ]
        while True:
            try:
                return await batched_append.find_committed(self._pool, keys, at)
            except DATABASE_UNAVAILABLE:
                await sleep(UNAVAILABLE_RETRY_SECONDS)

    def _saved(self, save: _Save, written: CheckpointWritten, at: datetime) -> None:
        journal = save.journal
        told = save.published_before or save.entries
        if told:
            self._publisher.publish(
                EventBatch(
                    journal.tenant,
                    journal.thread_id,
                    journal.run_id,
                    written.first_seq,
                    told,
                    at,
                )
            )
        save.answer_waiters(
            CheckpointSaved(written.unread_inputs, written.open_tasks, is_paused=written.is_paused)
        )


def _in_doubt(first_seq: int) -> CheckpointWritten:
    """A checkpoint whose reply was lost. Whether the run is paused isn't known: as if it were, so that its
    next step border asks the row."""
    return CheckpointWritten(first_seq, is_paused=True)


def _with_events_of_commit(entries: list[EventEntry], saved: CheckpointSaved) -> list[EventEntry]:
    """Adds the events that only the commit knows. A `run_finish` stays the last event."""
    if saved.rolled_back is not None:
        return [*entries[:-1], entry(PendingEvent(saved.rolled_back, None)), entries[-1]]
    if saved.pause_requested is not None:
        return [entry(PendingEvent(saved.pause_requested, None)), *entries]
    return entries
