"""API keys: made here, kept nowhere; a server knows only their hashes."""

import hashlib
import json
import secrets
from collections.abc import Sequence

import typer

from app.domain.principals import Scope


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def new_key(subject: str, tenant: str, scopes: Sequence[Scope]) -> None:
    """Print a new key to stderr, and what HOLDFAST_API_KEYS_FILE needs to stdout."""
    key = f"hf_{secrets.token_urlsafe(32)}"
    typer.echo(f"The key, shown this once: {key}", err=True)
    typer.echo("Append to the file of HOLDFAST_API_KEYS_FILE:", err=True)
    typer.echo(
        "[[keys]]\n"
        f"subject = {json.dumps(subject)}\n"
        f"tenant = {json.dumps(tenant)}\n"
        f"scopes = {json.dumps([scope.value for scope in scopes])}\n"
        f'sha256 = "{digest(key)}"'
    )
