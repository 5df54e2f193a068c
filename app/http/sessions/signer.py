"""Signs the values of session cookies, and reads them."""

import base64
import hmac
import json
from collections.abc import Sequence
from datetime import datetime

_PURPOSE = b"holdfast console session"
"""Derives keys from the secrets of stream tokens, so that no token of one kind passes as one of the other."""


class SessionSigner:
    """Signs with the first secret, and accepts what any of the secrets signed."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._keys = tuple(hmac.digest(secret, _PURPOSE, "sha256") for secret in secrets)

    def sign(self, key_id: str, expires_at: datetime) -> str:
        """The value of a cookie for the API key with this id."""
        body = json.dumps({"key_id": key_id, "exp": expires_at.timestamp()}).encode()
        return f"{_encoded(body)}.{_encoded(_signature(self._keys[0], body))}"

    def key_id(self, value: str, now: datetime) -> str | None:
        """The id of the API key; None if the value is forged or has expired."""
        body, _, signature = value.partition(".")
        try:
            raw = base64.urlsafe_b64decode(body + "==")
            given = base64.urlsafe_b64decode(signature + "==")
        except ValueError:
            return None
        if not any(hmac.compare_digest(given, _signature(key, raw)) for key in self._keys):
            return None
        claims = json.loads(raw)
        return str(claims["key_id"]) if claims["exp"] > now.timestamp() else None


def _signature(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
