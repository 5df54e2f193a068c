"""Idempotency: a command with a client's key takes effect once, and each repetition gets the same answer.

The transaction takes the key first, and stores the answer together with the effect. A refusal stores
nothing: the client may retry the request with the same key.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from app.domain.errors import AlreadyAnswered, Conflict, Invalid
from app.domain.idempotency import IdempotencyKey, StoredResponse
from app.domain.principals import Principal
from app.storage import idempotency
from app.storage.postgres.database import Connection

T = TypeVar("T")


class IdempotentCommand(Struct, Generic[T], frozen=True):
    """A client's key for a command, and the function that makes the stored response from its result."""

    key: IdempotencyKey
    answer_of: Callable[[T], StoredResponse]


def once_for(
    key: IdempotencyKey | None, answer_of: Callable[[T], StoredResponse]
) -> IdempotentCommand[T] | None:
    """The idempotent command of a request; None if the request has no key."""
    return None if key is None else IdempotentCommand(key, answer_of)


async def begin_idempotent(
    connection: Connection, principal: Principal, once: IdempotentCommand[Any] | None
) -> None:
    """Lock the key until commit; raises `AlreadyAnswered` with the stored response if there is one."""
    if once is None:
        return
    key = once.key
    if not await idempotency.hold(connection, principal.tenant, principal.subject, key):
        raise Conflict(
            "idempotency_key_in_flight",
            "A request with this Idempotency-Key is being answered. Send it again in a moment.",
        )
    found = await idempotency.find(connection, principal.tenant, principal.subject, key)
    if found is None:
        return
    if found.fingerprint != key.fingerprint:
        raise Invalid(
            "idempotency_key_reused",
            "Another request was sent under this Idempotency-Key. Use a new key for a new request.",
        )
    raise AlreadyAnswered(found.response)


async def store_response(
    connection: Connection, principal: Principal, once: IdempotentCommand[T] | None, result: T
) -> None:
    """Store the response, for repetitions within the idempotency retention."""
    if once is not None:
        await idempotency.store(
            connection, principal.tenant, principal.subject, once.key, once.answer_of(result)
        )
