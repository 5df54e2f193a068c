"""Reads pages of rows with a maximum number and size, so that decoding a page is fast."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Select, Text, cast, func, literal_column, or_, select, tuple_

from app.domain.slices import Order, PageRequest, Slice
from app.storage.codec import Row
from app.storage.postgres.database import Connection

T = TypeVar("T")

MAX_PAGE_BYTES = 1_000_000
"""Bytes of all columns as text. A single row may be larger."""


BY_CREATION = ("created_at", "id")


async def page_of(
    connection: Connection,
    statement: Select[Any],
    make: Callable[[Row], T],
    wanted: PageRequest,
    *,
    by: Sequence[str] = BY_CREATION,
) -> Slice[T]:
    """The rows of a statement that a request asks for, ordered `by` columns of its result."""
    columns = statement.selected_columns
    statement = in_period(statement, wanted)
    if wanted.after is not None:
        position = tuple_(*(columns[name] for name in by))
        is_next = position < wanted.after if wanted.order is Order.DESC else position > wanted.after
        statement = statement.where(is_next)
    return await page_rows(
        connection,
        statement,
        make,
        by=by,
        descending=wanted.order is Order.DESC,
        limit=wanted.limit,
    )


def in_period(statement: Select[Any], wanted: PageRequest) -> Select[Any]:
    """The rows of a statement that were created in the period of a request."""
    columns = statement.selected_columns
    if wanted.created_after is not None:
        statement = statement.where(columns["created_at"] >= wanted.created_after)
    if wanted.created_before is not None:
        statement = statement.where(columns["created_at"] < wanted.created_before)
    return statement


async def page_rows(
    connection: Connection,
    statement: Select[Any],
    make: Callable[[Row], T],
    *,
    by: Sequence[str],
    descending: bool,
    limit: int,
) -> Slice[T]:
    """The first rows of a statement, ordered `by` columns of its result.

    Returns at most `limit` rows and at most `MAX_PAGE_BYTES`, but at least one row if there is any.
    """
    order = [statement.selected_columns[name] for name in by]
    statement = statement.order_by(*(key.desc() if descending else key for key in order))
    candidates = statement.limit(limit + 1).subquery("candidates")
    row_bytes = func.octet_length(cast(literal_column("candidates"), Text))
    place = [candidates.c[name].desc() if descending else candidates.c[name] for name in by]
    measured = select(
        candidates,
        row_bytes.label("row_bytes"),
        func.sum(row_bytes).over(order_by=place, rows=(None, 0)).label("bytes_so_far"),
        func.count().over().label("candidate_count"),
    ).subquery("measured")
    fitting = (
        select(measured)
        .where(
            or_(
                measured.c.bytes_so_far <= MAX_PAGE_BYTES,
                measured.c.bytes_so_far == measured.c.row_bytes,
            )
        )
        .order_by(measured.c.bytes_so_far)
    )
    rows = (await connection.execute(fitting)).all()
    items = tuple(make(row) for row in rows[:limit])
    return Slice(items, bool(rows) and len(items) < rows[0]["candidate_count"])
