"""Stream tokens: signed and short-lived, for clients that can't send headers. Each opens one stream."""

import base64
import hmac
import json
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from app.domain.errors import Unauthenticated
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.principals import Principal, Scope


class StreamGrant(Struct, frozen=True):
    """What a stream token allows its bearer to read."""

    principal: Principal
    run_id: RunId | None
    thread_id: ThreadId | None
    """If both ids are None: the ticket feed."""


class StreamTokenSigner:
    """Signs tokens with the first secret, and accepts those signed with any of the secrets."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        if not secrets or not all(secrets):
            raise ValueError("stream tokens need a secret")
        self._secrets = tuple(secrets)

    def sign(
        self,
        principal: Principal,
        run_id: RunId | None,
        thread_id: ThreadId | None,
        expires_at: datetime,
    ) -> str:
        """A token for the stream of a run, of a thread, or, without ids, for the ticket feed."""
        body = json.dumps(
            {
                "tenant": principal.tenant,
                "subject": principal.subject,
                "run_id": run_id,
                "thread_id": thread_id,
                "exp": expires_at.timestamp(),
            }
        ).encode()
        return f"{_base64(body)}.{_base64(_signature(self._secrets[0], body))}"

    def grant(self, token: str, now: datetime) -> StreamGrant:
        """The grant of a token; raises `Unauthenticated` if it is forged or has expired."""
        body, _, signature = token.partition(".")
        try:
            raw = base64.urlsafe_b64decode(body + "==")
            given = base64.urlsafe_b64decode(signature + "==")
        except ValueError:
            raise _invalid() from None
        if not self._is_signed(raw, given):
            raise _invalid()
        claims = json.loads(raw)
        if claims["exp"] <= now.timestamp():
            raise Unauthenticated(
                "stream_token_expired",
                "The stream token has expired. Create a new one with POST /v1/stream-tokens.",
            )
        principal = Principal(
            Tenant(claims["tenant"]), claims["subject"], frozenset({Scope.RUNS_READ})
        )
        return StreamGrant(principal, claims["run_id"], claims["thread_id"])

    def _is_signed(self, body: bytes, signature: bytes) -> bool:
        return any(
            hmac.compare_digest(signature, _signature(secret, body)) for secret in self._secrets
        )


def _signature(secret: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, body, "sha256")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _invalid() -> Unauthenticated:
    return Unauthenticated(
        "stream_token_invalid",
        "This server didn't issue this stream token. Create one with POST /v1/stream-tokens.",
    )
