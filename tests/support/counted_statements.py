"""Counts the statements that this process sends to Postgres."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.storage.postgres.open_connections import TimedConnection
from app.storage.postgres.pool import NOTHING

_METHODS = ("execute", "executemany", "fetch", "fetchrow", "fetchval")


class Statements:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def __len__(self) -> int:
        return len(self.texts)

    def take(self) -> list[str]:
        """The statements since the last time."""
        taken, self.texts = self.texts, []
        return taken


@contextmanager
def counted_statements() -> Iterator[Statements]:
    found = Statements()
    with pytest.MonkeyPatch.context() as patch:
        for name in _METHODS:
            patch.setattr(TimedConnection, name, _counting(name, found), raising=False)
        yield found


def _counting(name: str, found: Statements) -> Any:
    original = getattr(TimedConnection, name)

    async def send(self: TimedConnection, query: str, *args: Any, **more: Any) -> Any:
        # The pool ends a statement that was given up a moment later, at no certain time.
        if query != NOTHING:
            found.texts.append(query)
        return await original(self, query, *args, **more)

    return send
