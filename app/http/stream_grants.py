"""Stream tokens: signed, short-lived rights to read one stream, for clients that can't send headers."""

import base64
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.errors import Unauthenticated
from app.domain.ids import RunId, Tenant, ThreadId
from app.domain.principals import Principal, Scope


@dataclass(frozen=True, slots=True)
class StreamGrant:
    """What a stream token lets its bearer read, and until when."""

    principal: Principal
    run_id: RunId | None
    thread_id: ThreadId | None
    """Without any of the two: the inbox."""


class StreamTokenSigner:
    """Signs tokens with the first secret and accepts those of all of them."""

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
        """A token for the stream of a run, of a thread, or, without any of the two, of the inbox."""
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
        """What a token allows; refuses one that this server hasn't signed, or that has expired."""
        body, _, signature = token.partition(".")
        try:
            raw = base64.urlsafe_b64decode(body + "==")
            given = base64.urlsafe_b64decode(signature + "==")
        except ValueError:
            raise _invalid() from None
        if not self._is_ours(raw, given):
            raise _invalid()
        claims = json.loads(raw)
        if claims["exp"] <= now.timestamp():
            raise Unauthenticated(
                "stream_token_expired", "The stream token has expired; get a new one."
            )
        principal = Principal(
            Tenant(claims["tenant"]), claims["subject"], frozenset({Scope.RUNS_READ})
        )
        return StreamGrant(principal, claims["run_id"], claims["thread_id"])

    def _is_ours(self, body: bytes, signature: bytes) -> bool:
        return any(
            hmac.compare_digest(signature, _signature(secret, body)) for secret in self._secrets
        )


def _signature(secret: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, body, "sha256")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _invalid() -> Unauthenticated:
    return Unauthenticated("stream_token_invalid", "This isn't a stream token of this server.")
