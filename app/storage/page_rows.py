"""Pages of rows, bounded by number and by bytes, so that no page takes long to decode or to send."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Select, Text, cast, func, literal_column, or_, select

from app.domain.slices import Slice
from app.storage.codec import Row
from app.storage.postgres.database import Connection

T = TypeVar("T")

MAX_PAGE_BYTES = 1_000_000
"""Of all columns as text. A single row may be larger."""


async def page_rows(
    connection: Connection,
    statement: Select[Any],
    make: Callable[[Row], T],
    *,
    by: Sequence[str],
    descending: bool,
    limit: int,
) -> Slice[T]:
    """The first rows of a statement, ordered `by` columns of its result: at least one if there is any, at
    most `limit`, and no more than fit into `MAX_PAGE_BYTES`."""
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
    rows = (await connection.execute(fitting)).mappings().all()
    items = tuple(make(row) for row in rows[:limit])
    return Slice(items, bool(rows) and len(items) < rows[0]["candidate_count"])
