"""Answers kept under the keys of their requests, in the transaction of what they tell about.

A key is held by an advisory lock of its transaction: whatever becomes of that, or of its process, no key
stays held, and an answer is there exactly if its effect is.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import delete, func, insert, select, tuple_

from app.domain.idempotency import IdempotencyKey, KeptAnswer
from app.domain.ids import Tenant
from app.domain.json_values import canonical
from app.storage.postgres.database import Connection
from app.storage.tables import idempotency_keys


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What the key was first used for, and the answer to that."""

    fingerprint: str
    answer: KeptAnswer


async def hold(connection: Connection, tenant: Tenant, subject: str, key: IdempotencyKey) -> bool:
    """At most one transaction has a key; False at once when another one has it."""
    name = canonical([tenant, subject, key.route, key.key])
    statement = select(func.pg_try_advisory_xact_lock(func.hashtextextended(name, 0)))
    return bool((await connection.execute(statement)).scalar_one())


async def find(
    connection: Connection, tenant: Tenant, subject: str, key: IdempotencyKey
) -> StoredAnswer | None:
    """What was kept under the key, which the caller holds."""
    table = idempotency_keys.c
    statement = select(table.fingerprint, table.status, table.body, table.location).where(
        table.tenant == tenant,
        table.subject == subject,
        table.route == key.route,
        table.key == key.key,
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    return StoredAnswer(row.fingerprint, KeptAnswer(row.status, row.body, row.location))


async def keep(
    connection: Connection,
    tenant: Tenant,
    subject: str,
    key: IdempotencyKey,
    answer: KeptAnswer,
) -> None:
    """Keep the answer under a key that the caller holds; it is there once the effect is."""
    await connection.execute(
        insert(idempotency_keys).values(
            tenant=tenant,
            subject=subject,
            route=key.route,
            key=key.key,
            fingerprint=key.fingerprint,
            status=answer.status,
            body=answer.body,
            location=answer.location,
        )
    )


async def forget(connection: Connection, older_than: float, limit: int) -> int:
    """Remove what was kept long enough, of every tenant, the oldest first."""
    table = idempotency_keys.c
    key = (table.tenant, table.subject, table.route, table.key)
    old = (
        select(*key)
        .where(table.created_at < func.now() - timedelta(seconds=older_than))
        .order_by(table.created_at)
        .limit(limit)
    )
    return (
        await connection.execute(delete(idempotency_keys).where(tuple_(*key).in_(old)))
    ).rowcount
