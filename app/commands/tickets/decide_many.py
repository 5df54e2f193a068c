"""Decide tickets of several runs. Each run has a transaction of its own, so one refusal stops no other run."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.commands.tickets.decide import Decided
from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext
from app.domain.errors import NotFound, Refusal
from app.domain.ids import RunId, TicketKey
from app.domain.principals import Principal, Scope
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.tickets import tickets

DecideRun: TypeAlias = Callable[[RunId, Sequence[DecisionRequest]], Awaitable[Decided]]
"""Decides tickets of one run, and executes it if it resumes."""


_EXPECTED: tuple[type[Exception], ...] = (Refusal, *DATABASE_UNAVAILABLE)


@dataclass(slots=True)
class RunDecisions:
    """The decisions about one run, and what came of them."""

    run_id: RunId | None
    requests: list[DecisionRequest] = field(default_factory=list)
    decided: Decided | None = None
    error: Exception | None = None
    """A refusal, or an outage of the database: none of these decisions may have taken effect."""


async def decide_many(
    ctx: ServiceContext,
    principal: Principal,
    requests: Sequence[DecisionRequest],
    decide_run: DecideRun,
) -> list[RunDecisions]:
    """Decide run by run, in the order of the requests."""
    principal.require(Scope.DECISIONS_WRITE)
    batches = await _by_run(ctx, principal, requests)
    for batch in batches:
        try:
            if batch.run_id is None:
                names = ", ".join(request.ticket for request in batch.requests[:3])
                raise NotFound("ticket_not_found", f"There is no ticket {names}.")
            batch.decided = await decide_run(batch.run_id, batch.requests)
        except _EXPECTED as error:
            batch.error = error
    return batches


async def _by_run(
    ctx: ServiceContext, principal: Principal, requests: Sequence[DecisionRequest]
) -> list[RunDecisions]:
    async with ctx.database.reading_by_key() as connection:
        owners = await tickets.runs_of(
            connection, principal.tenant, [request.ticket for request in requests]
        )
    batches: dict[RunId | None, RunDecisions] = {}
    for request in requests:
        run_id = owners.get(TicketKey(request.ticket))
        batches.setdefault(run_id, RunDecisions(run_id)).requests.append(request)
    return list(batches.values())
