"""Makes API keys. A key is printed once and not stored; servers know only its hash."""

import hashlib
import json
import secrets
from collections.abc import Sequence

import typer

from app.domain.principals import Scope


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def new_key(subject: str, tenant: str, scopes: Sequence[Scope]) -> None:
    """Print a new key to stderr, and its entry for the keys file to stdout."""
    key = f"hf_{secrets.token_urlsafe(32)}"
    typer.echo(f"The key, which is shown only once: {key}", err=True)
    typer.echo("Append this to the file of HOLDFAST_API_KEYS_FILE:", err=True)
    typer.echo(
        "[[keys]]\n"
        f"subject = {json.dumps(subject)}\n"
        f"tenant = {json.dumps(tenant)}\n"
        f"scopes = {json.dumps([scope.value for scope in scopes])}\n"
        f'sha256 = "{digest(key)}"'
    )
