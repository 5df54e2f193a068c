"""Once: a command under a client's key takes effect once, and tells every repetition the same.

The key is asked for before anything else and answered for in the same transaction as the effect. A
refusal keeps nothing: under the same key the request may be tried again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from app.domain.errors import AlreadyAnswered, Conflict, Invalid
from app.domain.idempotency import IdempotencyKey, KeptAnswer
from app.domain.principals import Principal
from app.storage import idempotency
from app.storage.postgres.database import Connection

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IdempotentCommand(Generic[T]):
    """A client's key for a command, and how what came of it is told."""

    key: IdempotencyKey
    answer_of: Callable[[T], KeptAnswer]


async def begin_once(
    connection: Connection, principal: Principal, once: IdempotentCommand[Any] | None
) -> None:
    """Take the key for this transaction; raises the first answer when there is one already."""
    if once is None:
        return
    key = once.key
    if not await idempotency.hold(connection, principal.tenant, principal.subject, key):
        raise Conflict(
            "idempotency_key_in_flight",
            "A request with this Idempotency-Key is being answered. Send it again in a moment.",
        )
    kept = await idempotency.find(connection, principal.tenant, principal.subject, key)
    if kept is None:
        return
    if kept.fingerprint != key.fingerprint:
        raise Invalid(
            "idempotency_key_reused",
            "Another request was sent under this Idempotency-Key. Use a new key for a new request.",
        )
    raise AlreadyAnswered(kept.answer)


async def keep_answer(
    connection: Connection, principal: Principal, once: IdempotentCommand[T] | None, result: T
) -> None:
    """Keep what the client is told, for as long as somebody may repeat the request."""
    if once is not None:
        await idempotency.keep(
            connection, principal.tenant, principal.subject, once.key, once.answer_of(result)
        )
