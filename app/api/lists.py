"""What all lists take: `order`, `cursor`, `limit`, and for most of them a period of creation. Exports as lines."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Query
from fastapi.responses import StreamingResponse
from msgspec import Struct

from app.api.schemas.common import Instant
from app.domain.slices import Order, PageRequest, Slice
from app.http import cursors
from app.http.query_params import in_event_loop

T = TypeVar("T")

LINES_OF_JSON = "application/x-ndjson"


class PageQuery(Struct, frozen=True):
    """Order and paging of a list."""

    order: Order = Order.DESC
    cursor: Annotated[
        str | None, Query(max_length=2000, description="`next_cursor` of the previous page.")
    ] = None
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of items of a page.")] = (
        50
    )

    def of(self, **filters: Any) -> "FilteredQuery":
        """The query together with the name and the filters of its list."""
        return FilteredQuery(self, {**filters, "order": self.order}, None, None)


class PeriodQuery(Struct, frozen=True):
    """The period of a count."""

    created_after: Instant | None = None
    created_before: Instant | None = None

    def request(self) -> PageRequest:
        return PageRequest(created_after=self.created_after, created_before=self.created_before)


class ListQuery(PageQuery, frozen=True):
    """Order, paging and period of a list."""

    created_after: Instant | None = None
    created_before: Instant | None = None

    def of(self, **filters: Any) -> "FilteredQuery":
        after, before = self.created_after, self.created_before
        period = {"created_after": after, "created_before": before}
        return FilteredQuery(self, {**filters, **period, "order": self.order}, after, before)


class AscendingPageQuery(PageQuery, frozen=True):
    """The same for lists that begin with the oldest item if no order is requested."""

    order: Order = Order.ASC


class AscendingListQuery(ListQuery, frozen=True):
    """The same for lists that begin with the oldest item if no order is requested."""

    order: Order = Order.ASC


InPeriod = Annotated[PeriodQuery, in_event_loop(PeriodQuery)]
Listed = Annotated[ListQuery, in_event_loop(ListQuery)]
ListedAscending = Annotated[AscendingListQuery, in_event_loop(AscendingListQuery)]
PagedAscending = Annotated[AscendingPageQuery, in_event_loop(AscendingPageQuery)]


class FilteredQuery(Struct, frozen=True):
    """A query with the filters of its list. Its cursors are valid for the same filters only."""

    query: PageQuery
    name: Mapping[str, Any]
    created_after: datetime | None
    created_before: datetime | None

    def by_creation(self) -> PageRequest:
        """The request for a list that is sorted by creation and id."""
        return self._request(cursors.decode(self.name, self.query.cursor))

    def by_number(self) -> PageRequest:
        seq = cursors.decode_seq(self.name, self.query.cursor)
        return self._request(None if seq is None else (seq,))

    def by_pair(self) -> PageRequest:
        """The request for a list that is sorted by two numbers."""
        return self._request(cursors.decode_pair(self.name, self.query.cursor))

    def _request(self, after: tuple[Any, ...] | None) -> PageRequest:
        return PageRequest(
            order=self.query.order,
            after=after,
            created_after=self.created_after,
            created_before=self.created_before,
            limit=self.query.limit,
        )


def numbered_page(items: Sequence[T], requested: PageRequest) -> Slice[tuple[int, T]]:
    """A page of a list that is in memory. Each item has its number, which is its cursor."""
    numbered = list(enumerate(items, 1))
    if requested.order is Order.DESC:
        numbered.reverse()
    if requested.after is not None:
        [last] = requested.after
        shown = last if requested.order is Order.ASC else len(numbered) + 1 - last
        numbered = numbered[max(shown, 0) :]
    return Slice(tuple(numbered[: requested.limit]), len(numbered) > requested.limit)


async def exported(lines: AsyncGenerator[str]) -> StreamingResponse:
    """A response with lines of JSON, sent as they are read. Reads the first ones now: an error can still become
    an error response."""
    return StreamingResponse(_after(await anext(lines, ""), lines), media_type=LINES_OF_JSON)


async def _after(first: str, lines: AsyncGenerator[str]) -> AsyncGenerator[str]:
    async with aclosing(lines):
        yield first
        async for more in lines:
            yield more
