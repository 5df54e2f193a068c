"""Signals: sent once per id, matched with open tickets under the lock of their name and key.

`lock_key` orders transactions that open a ticket and those that send a signal: the second one reads what the
first has committed. It is taken after the locks of thread, run and tickets, and before rows of signals.
"""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct
from sqlalchemy import and_, delete, exists, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.ids import RunId, Tenant, ThreadId, TicketKey
from app.domain.json_values import JsonObject, canonical, storable
from app.domain.signals import (
    EventWait,
    Signal,
    SignalOutcome,
    SignalStatus,
    SignalTicket,
    StoredSignal,
)
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.storage.codec import Row
from app.storage.postgres.database import Connection
from app.storage.tables import signal_tickets, signals, tickets

_KEY_LOCK_SEED = 0x5369676E
_is_open_event = and_(
    tickets.c.kind == TicketKind.EVENT.value, tickets.c.status == TicketStatus.OPEN.value
)


class WaitingTicket(Struct, frozen=True):
    """An open ticket that a signal may answer."""

    ticket: TicketKey
    run_id: RunId
    thread_id: ThreadId
    schema: JsonObject | None


async def lock_key(connection: Connection, tenant: Tenant, name: str, key: str) -> None:
    """Until commit, no other transaction opens a ticket for this name and key or sends such a signal."""
    text = canonical([tenant, name, key])
    lock = func.pg_advisory_xact_lock(func.hashtextextended(text, _KEY_LOCK_SEED))
    await connection.execute(select(lock))


async def add(
    connection: Connection, signal: Signal, status: SignalStatus, *, kept_for: float
) -> bool:
    """Store a signal; False when its id is taken."""
    response_status = None if status is SignalStatus.DELIVERING else status.value
    statement = (
        upsert(signals)
        .values(
            tenant=signal.tenant,
            id=signal.id,
            name=signal.name,
            key=signal.key,
            payload=storable(signal.payload),
            fingerprint=signal.fingerprint,
            sent_by=signal.sent_by,
            status=status.value,
            response_status=response_status,
            kept_until=func.now() + timedelta(seconds=kept_for),
        )
        .on_conflict_do_nothing(index_elements=["tenant", "id"])
    )
    return (await connection.execute(statement)).rowcount == 1


async def find(connection: Connection, tenant: Tenant, id: str) -> StoredSignal | None:
    """A signal with the tickets that waited when it was sent, in the order in which they were opened."""
    statement = select(signals).where(signals.c.tenant == tenant, signals.c.id == id)
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    matched = (
        select(signal_tickets)
        .where(
            signal_tickets.c.tenant == tenant,
            signal_tickets.c.signal_id == id,
            signal_tickets.c.waited,
        )
        .order_by(signal_tickets.c.position)
    )
    rows = await connection.execute(matched)
    return _stored(row, tuple(_signal_ticket(each) for each in rows))


def _stored(row: Row, matched: tuple[SignalTicket, ...] = ()) -> StoredSignal:
    return StoredSignal(
        signal=Signal(
            tenant=Tenant(row["tenant"]),
            id=row["id"],
            name=row["name"],
            key=row["key"],
            payload=row["payload"],
            sent_by=row["sent_by"],
        ),
        fingerprint=row["fingerprint"],
        status=SignalStatus(row["status"]),
        kept_until=row["kept_until"],
        created_at=row["created_at"],
        tickets=matched,
        response_status=None
        if row["response_status"] is None
        else SignalStatus(row["response_status"]),
    )


def _signal_ticket(row: Row) -> SignalTicket:
    return SignalTicket(
        ticket=TicketKey(row["ticket"]),
        run_id=RunId(row["run_id"]),
        thread_id=ThreadId(row["thread_id"]),
        outcome=SignalOutcome(row["outcome"]),
        problem=row["problem"],
    )


async def waiting_for(
    connection: Connection, tenant: Tenant, name: str, key: str
) -> list[WaitingTicket]:
    """Open tickets that wait for this name and key, the oldest first."""
    statement = (
        select(tickets.c.id, tickets.c.run_id, tickets.c.thread_id, tickets.c.response_schema)
        .where(
            tickets.c.tenant == tenant,
            tickets.c.event_name == name,
            tickets.c.event_key == key,
            _is_open_event,
        )
        .order_by(tickets.c.created_at, tickets.c.id)
    )
    return [
        WaitingTicket(TicketKey(row.id), RunId(row.run_id), ThreadId(row.thread_id), schema)
        for row in await connection.execute(statement)
        for schema in (row.response_schema,)
    ]


async def add_tickets(
    connection: Connection,
    tenant: Tenant,
    id: str,
    matched: Sequence[SignalTicket],
    *,
    waited: bool = True,
) -> None:
    """Record the tickets that a signal was matched with, in order."""
    if matched:
        await connection.execute_many(
            upsert(signal_tickets).on_conflict_do_nothing(
                index_elements=["tenant", "signal_id", "ticket"]
            ),
            [
                {
                    "tenant": tenant,
                    "signal_id": id,
                    "ticket": each.ticket,
                    "run_id": each.run_id,
                    "thread_id": each.thread_id,
                    "position": position,
                    "outcome": each.outcome.value,
                    "problem": storable(each.problem),
                    "waited": waited,
                }
                for position, each in enumerate(matched)
            ],
        )


async def pending(
    connection: Connection, tenant: Tenant, id: str, limit: int
) -> list[SignalTicket]:
    """Tickets that a signal is still to be delivered to."""
    statement = (
        select(signal_tickets)
        .where(
            signal_tickets.c.tenant == tenant,
            signal_tickets.c.signal_id == id,
            signal_tickets.c.outcome == SignalOutcome.PENDING.value,
        )
        .order_by(signal_tickets.c.position)
        .limit(limit)
    )
    rows = await connection.execute(statement)
    return [_signal_ticket(row) for row in rows]


async def set_outcome(
    connection: Connection, tenant: Tenant, id: str, ticket: TicketKey, outcome: SignalOutcome
) -> bool:
    """Write the outcome of a signal at a ticket; False if it has one."""
    statement = (
        update(signal_tickets)
        .where(
            signal_tickets.c.tenant == tenant,
            signal_tickets.c.signal_id == id,
            signal_tickets.c.ticket == ticket,
            signal_tickets.c.outcome == SignalOutcome.PENDING.value,
        )
        .values(outcome=outcome.value)
    )
    return (await connection.execute(statement)).rowcount == 1


async def finish(connection: Connection, tenant: Tenant, id: str, status: SignalStatus) -> bool:
    """Write the final status of a signal; False if it has one."""
    statement = (
        update(signals)
        .where(
            signals.c.tenant == tenant,
            signals.c.id == id,
            signals.c.status == SignalStatus.DELIVERING.value,
        )
        .values(status=status.value, response_status=status.value)
    )
    return (await connection.execute(statement)).rowcount == 1


async def take(connection: Connection, tenant: Tenant, id: str) -> bool:
    """Use a kept signal for one ticket; False if another ticket used it."""
    statement = (
        update(signals)
        .where(
            signals.c.tenant == tenant,
            signals.c.id == id,
            signals.c.status == SignalStatus.KEPT.value,
        )
        .values(status=SignalStatus.ANSWERED.value)
    )
    return (await connection.execute(statement)).rowcount == 1


async def kept_for(
    connection: Connection, tenant: Tenant, wait: EventWait, ticket: TicketKey
) -> list[StoredSignal]:
    """Kept signals that weren't matched with this ticket yet, oldest first."""
    was_matched = exists().where(
        signal_tickets.c.tenant == signals.c.tenant,
        signal_tickets.c.signal_id == signals.c.id,
        signal_tickets.c.ticket == ticket,
    )
    statement = (
        select(signals)
        .where(
            signals.c.tenant == tenant,
            signals.c.name == wait.name,
            signals.c.key == wait.key,
            _is_kept,
            ~was_matched,
        )
        .order_by(signals.c.created_at, signals.c.id)
    )
    return [_stored(row) for row in (await connection.execute(statement))]


_is_kept = and_(signals.c.status == SignalStatus.KEPT.value, signals.c.kept_until > func.now())


async def count_kept(connection: Connection, tenant: Tenant, name: str, key: str) -> int:
    statement = (
        select(func.count())
        .select_from(signals)
        .where(signals.c.tenant == tenant, signals.c.name == name, signals.c.key == key, _is_kept)
    )
    return int((await connection.execute(statement)).scalar_one())


async def delete_old(connection: Connection, older_than: float, limit: int) -> int:
    """Delete signals of all tenants that are older than `older_than`, oldest first."""
    key = (signals.c.tenant, signals.c.id)
    old = (
        select(*key)
        .where(
            signals.c.status != SignalStatus.DELIVERING.value,
            signals.c.created_at < func.now() - timedelta(seconds=older_than),
        )
        .order_by(signals.c.created_at)
        .limit(limit)
    )
    statement = delete(signals).where(tuple_(*key).in_(old))
    return (await connection.execute(statement)).rowcount
