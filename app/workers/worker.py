"""The worker: claims runs for this process's slots and executes them."""

import structlog

from app import telemetry
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.events.fanout.cancel_hints import decode_cancel_hint
from app.events.sse_encoding import EventBatch
from app.storage.postgres.database import Connection
from app.storage.queue import cancel_requests
from app.storage.runs import claims
from app.storage.runs.runs import RunKey
from app.workers.delivery_queue import DeliveryResult
from app.workers.execution import Execution
from app.workers.execution_context import ExecutionContext
from app.workers.liveness.poison_guard import SUSPECT_LOSSES, PoisonGuard
from app.workers.slots import Slots

SLOT_TIMEOUT_SECONDS = 1.0
"""How long a delivery waits for a slot here before it goes back into the queue."""

log = structlog.get_logger(__name__)


class Worker:
    """Executes at most `slots` runs at once."""

    def __init__(
        self,
        context: ExecutionContext,
        worker_id: WorkerId,
        poison_guard: PoisonGuard,
        *,
        slots: int,
        heartbeat_timeout: float,
    ) -> None:
        self.worker_id = worker_id
        self.slots = Slots(slots)
        self._context = context
        self._poison_guard = poison_guard
        self._heartbeat_timeout = heartbeat_timeout
        self._executions: dict[tuple[Tenant, RunId], Execution] = {}

    async def run(self) -> None:
        """Own the executions' tasks until `stop` has ended them."""
        await self.slots.run()

    async def handle(self, key: RunKey, dispatch_id: str) -> DeliveryResult:
        """Handle a delivery: claim its run for a free slot and execute it."""
        if not await self._reserve_for(key):
            return DeliveryResult.BUSY
        await self.claim_and_launch(key, dispatch_id)
        return DeliveryResult.DONE

    async def _reserve_for(self, key: RunKey) -> bool:
        """Wait a little for a slot. A run with a cancel request gets one beyond the limit: it is only ended,
        and a cancel must settle however long the other runs take."""
        if await self.slots.reserve_within(SLOT_TIMEOUT_SECONDS):
            return True
        if not await cancel_requests.is_requested(self._context.database.pool, key):
            return False
        return self.slots.reserve_extra()

    async def claim_and_launch(self, key: RunKey, dispatch_id: str | None) -> bool:
        """Claim a run and execute it in a reserved slot. False, with the slot freed, if another worker
        owns it or it can't execute now."""
        claimed = None
        try:
            with self._poison_guard.claiming((key.tenant, key.run_id)) as claim:
                claimed = await claims.claim(
                    self._context.database.pool,
                    key.tenant,
                    key.thread_id,
                    key.run_id,
                    self.worker_id,
                    self._heartbeat_timeout,
                    dispatch_id,
                    attempt=key.attempt,
                    unless_lost=claim.losses_to_skip,
                )
                claim.losses = None if claimed is None else claimed.record.losses
        finally:
            if claimed is None:
                self.slots.free()
        if claimed is None:
            return False
        if claimed.events:
            self._context.writer.publish(
                EventBatch(
                    *(key.tenant, key.thread_id, key.run_id),
                    *(claimed.event_seq, claimed.events, claimed.record.updated_at),
                )
            )
        if claimed.taken_over:
            telemetry.takeovers.inc()
            log.warning("run_taken_over", run_id=key.run_id, attempt=claimed.record.attempt)
        self.launch(_claimed_run(claimed))
        return True

    async def claim_in(self, connection: Connection, key: RunKey) -> ClaimedRun | None:
        """Claim a waiting run in a command's transaction, for a reserved slot. None if it is a suspect of the
        poison guard, or can't be claimed now."""
        claimed = await claims.claim(
            connection.driver,
            *(key.tenant, key.thread_id, key.run_id),
            self.worker_id,
            self._heartbeat_timeout,
            unless_lost=SUSPECT_LOSSES,
        )
        return None if claimed is None else _claimed_run(claimed)

    def first_message_to_read(self, tenant: Tenant, thread_id: ThreadId) -> int:
        """The number of the message from which on a thread's log must be read here."""
        return self._context.histories.first_to_read((tenant, thread_id))

    def launch(self, claimed: ClaimedRun) -> None:
        """Execute a claimed run in a reserved slot."""
        slots = self.slots
        execution = Execution(self._context, claimed, slots.stopping, start_task=slots.start_beside)
        if slots.stopping.is_set():
            execution.interruption.hand_over(now=False)
        key = (claimed.record.tenant, claimed.record.id)
        self._executions[key] = execution
        telemetry.runs_executing.inc()
        task = slots.start(execution.run())
        task.add_done_callback(lambda _: self._ended(key, execution))

    def _ended(self, key: tuple[Tenant, RunId], execution: Execution) -> None:
        if self._executions.get(key) is execution:
            del self._executions[key]
            self._poison_guard.dismiss(key)
        telemetry.runs_executing.dec()
        self.slots.free()

    def record_progress(self, key: RunKey) -> None:
        """A run has committed progress since it was claimed."""
        self._poison_guard.dismiss((key.tenant, key.run_id))

    def on_cancel_hint(self, payload: str) -> None:
        """Interrupt a cancelled run at once, instead of with the next heartbeat."""
        self.cancel(*decode_cancel_hint(payload))

    def cancel(self, tenant: Tenant, run_id: RunId, reason: str | None) -> None:
        """Interrupt a run whose cancel was requested, if it executes here."""
        execution = self._executions.get((tenant, run_id))
        if execution is not None:
            execution.interruption.cancel(reason)

    def executes(self, key: RunKey) -> bool:
        return (key.tenant, key.run_id) in self._executions

    @property
    def executing(self) -> int:
        return len(self._executions)

    async def stop(self, grace: float) -> None:
        """Take no more runs. Hand over each at its next safe point, or at once after `grace` seconds."""
        if not await self.slots.hand_over_all(grace, self._hand_over):
            log.error("runs_abandoned_at_shutdown", runs=self.executing)

    def _hand_over(self, now: bool) -> None:
        if now:
            log.warning("runs_interrupted_at_shutdown", runs=self.executing)
        for execution in list(self._executions.values()):
            execution.interruption.hand_over(now=now)


def _claimed_run(row: claims.ClaimedRow) -> ClaimedRun:
    return ClaimedRun(
        record=row.record,
        next_seq=row.next_message_seq,
        previous_state=row.previous_state,
        thread_state=row.thread_state,
    )
