"""API keys for tests: a keys file as an operator writes it, for keys that are their own names."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a key: of which tenant, and with which scopes."""

    tenant: str
    scopes: Sequence[str] = ("runs:read", "runs:write", "decisions:write", "signals:write")


def write_keys(file: Path, holders: Mapping[str, Holder]) -> Path:
    """A keys file in which each holder's key is the holder's name."""
    file.write_text("".join(_entry(name, holder) for name, holder in holders.items()))
    return file


def _entry(name: str, holder: Holder) -> str:
    return (
        "[[keys]]\n"
        f"subject = {json.dumps(name)}\n"
        f"tenant = {json.dumps(holder.tenant)}\n"
        f"scopes = {json.dumps(list(holder.scopes))}\n"
        f'sha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n\n'
    )
