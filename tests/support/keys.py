"""API keys for tests: a keys file in which each key equals the name of its holder."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a key: tenant and scopes."""

    tenant: str
    scopes: Sequence[str] = (
        "runs:read",
        "runs:write",
        "decisions:write",
        "signals:write",
        "usage:read",
        "memories:own",
    )


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
