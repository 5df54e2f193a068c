"""Commands that execute their run in this process, without a delivery, if the worker has a free slot.

The slot is reserved before the command's transaction, and freed again if no run needs it.
"""

from collections.abc import Sequence
from typing import Protocol, Self, TypeVar

import structlog

from app.commands.idempotency import IdempotentCommand
from app.commands.runs.new_run import StartRequest
from app.commands.runs.start import StartedRun, start_run
from app.commands.tickets.decide import Decided, decide
from app.commands.tickets.decide_at_once import decide_at_once
from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.ids import RunId, WorkerId
from app.domain.principals import Principal
from app.domain.runs.runs import RunRecord
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.runs.claims import ClaimHere
from app.storage.runs.runs import RunKey
from app.workers.worker import Worker

log = structlog.get_logger(__name__)


async def start_and_execute(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    request: StartRequest,
    once: IdempotentCommand[RunRecord] | None = None,
) -> StartedRun:
    """Start a run."""
    with _Slot.reserved(worker) as slot:
        started = await start_run(ctx, principal, request, worker=slot.worker_id, once=once)
        if started.claimed is not None:
            slot.launch(started.claimed)
        await slot.claim_and_launch(started.to_claim)
    return started


async def decide_and_execute(
    ctx: ServiceContext,
    worker: Worker | None,
    principal: Principal,
    run_id: RunId,
    requests: Sequence[DecisionRequest],
    once: IdempotentCommand[Decided] | None = None,
) -> Decided:
    """Decide tickets, and execute their run if it resumes.

    `once` stores the response in the decision's transaction.
    """
    with _Slot.reserved(worker) as slot:
        decided = None
        if slot.worker is not None and once is None:
            decided = await decide_at_once(ctx, principal, run_id, requests, slot.worker)
        if decided is None:
            decided = await decide(
                *(ctx, principal, run_id, requests),
                deliver=slot.is_missing,
                claim=slot.claim,
                once=once,
            )
        if decided.claimed is not None:
            slot.launch(decided.claimed)
        await slot.claim_and_launch(decided.to_claim)
    return decided


class Accepted(Protocol):
    """The answer of a command."""

    @property
    def to_claim(self) -> RunKey | None:
        """The run, if it can execute and no delivery was enqueued."""


AcceptedT = TypeVar("AcceptedT", bound=Accepted, covariant=True)


class Command(Protocol[AcceptedT]):
    """A command that enqueues a delivery of its run, or with `deliver=False` leaves the claim to the caller."""

    async def __call__(self, *, deliver: bool) -> AcceptedT: ...


async def execute_here(worker: Worker | None, command: Command[AcceptedT]) -> AcceptedT:
    """Do the command, and execute its run."""
    with _Slot.reserved(worker) as slot:
        accepted = await command(deliver=slot.is_missing)
        await slot.claim_and_launch(accepted.to_claim)
    return accepted


class _Slot:
    """A slot that is reserved for at most one run; missing if the worker has none free."""

    def __init__(self, worker: Worker | None) -> None:
        self.worker = worker
        """The worker whose slot this is, until the slot is used."""

    @classmethod
    def reserved(cls, worker: Worker | None) -> Self:
        """Free the slot at the end of the block if no run uses it."""
        return cls(worker if worker is not None and worker.slots.reserve() else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if (worker := self._take()) is not None:
            worker.slots.free()

    @property
    def is_missing(self) -> bool:
        return self.worker is None

    @property
    def worker_id(self) -> WorkerId | None:
        return None if self.worker is None else self.worker.worker_id

    @property
    def claim(self) -> ClaimHere | None:
        return None if self.worker is None else self.worker.claim_in

    def launch(self, claimed: ClaimedRun) -> None:
        """Execute a run that the command's transaction claimed."""
        if (worker := self._take()) is not None:
            worker.launch(claimed)

    async def claim_and_launch(self, key: RunKey | None) -> None:
        """Claim a committed run and execute it. After an outage the sweeper enqueues it."""
        if key is None or (worker := self._take()) is None:
            return
        try:
            await worker.claim_and_launch(key, None)
        except DATABASE_UNAVAILABLE:
            log.warning("run_not_claimed", run_id=key.run_id)

    def _take(self) -> Worker | None:
        worker, self.worker = self.worker, None
        return worker
