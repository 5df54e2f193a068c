"""Send a signal: it is stored once per id, and then delivered to each ticket that waits for it.

A process that dies in between has lost nothing: a queued job, or the same request again, completes it.
"""

from collections.abc import Sequence

from msgspec import Struct

from app import telemetry
from app.clock import yield_to_loop
from app.commands.tickets.deliver_signal import complete
from app.commands.tickets.match_signal import payload_problem
from app.context import ServiceContext
from app.domain.errors import Conflict, Invalid, TooMany
from app.domain.json_values import Json, digest
from app.domain.principals import Principal, Scope
from app.domain.signals import (
    MAX_KEPT_PER_KEY,
    DeliverSignal,
    Signal,
    SignalOutcome,
    SignalStatus,
    SignalTicket,
    StoredSignal,
)
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries
from app.storage.tickets import signals
from app.storage.tickets.signals import WaitingTicket

JOB_DELAY_SECONDS = 2.0
"""Delay of the job. The request itself is faster, unless its process dies."""


class NewSignal(Struct, frozen=True, kw_only=True):
    """A signal as the client sent it."""

    id: str
    name: str
    key: str
    payload: Json


async def send(ctx: ServiceContext, principal: Principal, new: NewSignal) -> StoredSignal:
    """Answer every open ticket for this name and key, or keep the signal for the next one."""
    principal.require(Scope.SIGNALS_WRITE)
    signal = Signal(
        tenant=principal.tenant,
        id=new.id,
        name=new.name,
        key=new.key,
        payload=new.payload,
        sent_by=principal.subject,
    )
    async with ctx.database.transaction() as connection:
        await signals.lock_key(connection, signal.tenant, signal.name, signal.key)
        known = await signals.find(connection, signal.tenant, signal.id)
        if known is None and not await _store(connection, signal, ctx.limits.signal_seconds):
            known = await signals.find(connection, signal.tenant, signal.id)
        if known is not None and known.fingerprint != signal.fingerprint:
            raise Conflict(
                "signal_id_conflict",
                f"Another signal was sent under the id {signal.id!r}. Use a new one.",
            )
    if known is None or known.response_status is None:
        await complete(ctx, signal.tenant, signal.id)
    return await _stored(ctx, signal)


async def _stored(ctx: ServiceContext, signal: Signal) -> StoredSignal:
    async with ctx.database.reading() as connection:
        stored = await signals.find(connection, signal.tenant, signal.id)
    if stored is None:
        raise Conflict(
            "signal_id_conflict",
            f"The signal {signal.id!r} was removed, because its retention is over. Use a new id.",
        )
    return stored


async def _store(connection: Connection, signal: Signal, kept_for: float) -> bool:
    """Store the signal with the tickets that it answers; False if another signal has its id."""
    waiting = await signals.waiting_for(connection, signal.tenant, signal.name, signal.key)
    matches = await _matched(signal, waiting)
    fits = any(each.outcome is SignalOutcome.PENDING for each in matches)
    if matches and not fits:
        raise Invalid(
            "signal_payload_mismatch",
            f"No ticket that waits for {signal.name!r} takes this payload: {matches[0].problem}",
            tickets=[{"id": each.ticket, "problem": each.problem} for each in matches[:20]],
        )
    if not fits:
        kept_count = await signals.count_kept(connection, signal.tenant, signal.name, signal.key)
        if kept_count >= MAX_KEPT_PER_KEY:
            raise TooMany(
                "queue_full",
                f"{kept_count} signals with this name and key wait for a ticket. Send it again later.",
            )
    status = SignalStatus.DELIVERING if fits else SignalStatus.KEPT
    if not await signals.add(connection, signal, status, kept_for=kept_for):
        return False
    await signals.add_tickets(connection, signal.tenant, signal.id, matches)
    if fits:
        job = DeliverSignal(tenant=signal.tenant, id=signal.id)
        await deliveries.enqueue_signal_job(connection, job, after=JOB_DELAY_SECONDS)
    telemetry.signals.labels(status.value).inc()
    return True


async def _matched(signal: Signal, waiting: Sequence[WaitingTicket]) -> list[SignalTicket]:
    """Match the payload with each ticket's schema. A schema that several tickets share is checked once."""
    problems: dict[str, str | None] = {}
    matches = []
    for each in waiting:
        name = digest(each.schema)
        if name not in problems:
            problems[name] = payload_problem(each.schema, signal.payload)
            await yield_to_loop()
        problem = problems[name]
        outcome = SignalOutcome.PENDING if problem is None else SignalOutcome.PAYLOAD_MISMATCH
        matches.append(
            SignalTicket(
                ticket=each.ticket,
                run_id=each.run_id,
                thread_id=each.thread_id,
                outcome=outcome,
                problem=problem,
            )
        )
    return matches
