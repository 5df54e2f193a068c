"""Executes statements in a transaction, on a connection of the driver."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import asyncpg
from sqlalchemy import Executable

from app.storage.postgres.statements import Parameters, Prepared, query_of

Driver: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Row(asyncpg.Record):
    """A row. Its columns are items and attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class MoreThanOneRow(Exception):
    """A statement returned several rows where at most one was expected."""


class NoRow(Exception):
    """A statement returned no row where one was expected."""


class Result:
    """The rows of a statement, or the number of rows that it has written."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Sequence[Row], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def all(self) -> Sequence[Row]:
        return self._rows

    def first(self) -> Row | None:
        return self._rows[0] if self._rows else None

    def one(self) -> Row:
        row = self.one_or_none()
        if row is None:
            raise NoRow
        return row

    def one_or_none(self) -> Row | None:
        if len(self._rows) > 1:
            raise MoreThanOneRow
        return self.first()

    def scalars(self) -> list[Any]:
        """The first column of each row."""
        return [row[0] for row in self._rows]

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        row = self.one_or_none()
        return None if row is None else row[0]


class DatabaseConnection:
    """A connection in a transaction, or between transactions: then each statement is one."""

    __slots__ = ("driver",)

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    async def execute(
        self, statement: Executable | Prepared, parameters: Parameters | None = None
    ) -> Result:
        known = parameters or {}
        query = (
            statement.query(known)
            if isinstance(statement, Prepared)
            else query_of(statement, known)
        )
        if query.returns_rows:
            rows: Any = await self.driver.fetch(query.text, *query.arguments)
            return Result(rows, len(rows))
        return Result((), _count(await self.driver.execute(query.text, *query.arguments)))

    async def execute_many(self, statement: Executable, rows: Sequence[Parameters]) -> None:
        """Execute a statement for each of these rows, which have the same keys, in one round trip."""
        queries = [query_of(statement, row) for row in rows]
        if len(queries) == 1:
            await self.driver.execute(queries[0].text, *queries[0].arguments)
        elif queries:
            await self.driver.executemany(queries[0].text, [query.arguments for query in queries])

    async def scalar(
        self, statement: Executable | Prepared, parameters: Parameters | None = None
    ) -> Any:
        """The first column of the first row; None if there is none."""
        row = (await self.execute(statement, parameters)).first()
        return None if row is None else row[0]

    async def scalars(
        self, statement: Executable | Prepared, parameters: Parameters | None = None
    ) -> list[Any]:
        """The first column of each row."""
        return (await self.execute(statement, parameters)).scalars()


def _count(status: str) -> int:
    """The rows that a command has written, from its status: `UPDATE 3`, `INSERT 0 3`."""
    last = status.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0
