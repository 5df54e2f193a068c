"""Responses stored under idempotency keys, in the transaction of the command that they answer.

An advisory lock of the transaction holds the key. So a dead process holds no key, and a response is stored
exactly if its command was committed.
"""

from datetime import timedelta

from msgspec import Struct
from sqlalchemy import delete, func, insert, select, tuple_

from app.domain.idempotency import IdempotencyKey, StoredResponse
from app.domain.ids import Tenant
from app.domain.json_values import canonical
from app.storage.postgres.database import Connection
from app.storage.tables import idempotency_keys


class StoredRequest(Struct, frozen=True):
    """The fingerprint of the first request with a key, and its response."""

    fingerprint: str
    response: StoredResponse


async def hold(connection: Connection, tenant: Tenant, subject: str, key: IdempotencyKey) -> bool:
    """Lock a key until commit; False if another transaction holds it."""
    name = canonical([tenant, subject, key.route, key.key])
    statement = select(func.pg_try_advisory_xact_lock(func.hashtextextended(name, 0)))
    return bool((await connection.execute(statement)).scalar_one())


async def find(
    connection: Connection, tenant: Tenant, subject: str, key: IdempotencyKey
) -> StoredRequest | None:
    """The response stored under a key that the caller holds."""
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
    return StoredRequest(row.fingerprint, StoredResponse(row.status, row.body, row.location))


async def store(
    connection: Connection,
    tenant: Tenant,
    subject: str,
    key: IdempotencyKey,
    response: StoredResponse,
) -> None:
    """Store the response under a key that the caller holds, in the transaction of its command."""
    await connection.execute(
        insert(idempotency_keys).values(
            tenant=tenant,
            subject=subject,
            route=key.route,
            key=key.key,
            fingerprint=key.fingerprint,
            status=response.status,
            body=response.body,
            location=response.location,
        )
    )


async def delete_old(connection: Connection, older_than: float, limit: int) -> int:
    """Delete responses of all tenants that are older than `older_than`, oldest first."""
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
