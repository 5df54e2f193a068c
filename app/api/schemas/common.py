"""What all shapes share: strict requests, checked text, ids, pages and times."""

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from fastapi import Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

from app.domain.ids import canonical_uuid
from app.domain.json_values import is_unicode
from app.domain.slices import Slice
from app.domain.timestamps import format_timestamp

T = TypeVar("T")
Row = TypeVar("Row")

MAX_DEPTH = 50

MAX_FIELDS = 100
"""More than any request has, by all names of its fields."""
MAX_TIME_LENGTH = 100

_NUMBER = re.compile(r"\s*[+-]?[\d_]*(\.[\d_]*)?(e[+-]?\d+)?\s*", re.IGNORECASE)


class RequestModel(BaseModel):
    """A typo in a field's name must not silently mean the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, fields: Any) -> Any:
        """Each unknown field is an error of its own, which takes time to describe."""
        if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
            raise ValueError(f"has more than {MAX_FIELDS} fields; it takes {_names_of(cls)}")
        return fields


def _names_of(request: type[BaseModel]) -> str:
    return ", ".join(request.model_fields)


class ResponseModel(BaseModel):
    model_config = ConfigDict(frozen=True)


def _uuid(value: str) -> str:
    found = canonical_uuid(value)
    if found is None:
        raise ValueError("must be a UUID, such as 01932c07-2b6a-7c3e-9d4f-6a1b2c3d4e5f")
    return found


def _storable(value: Any) -> Any:
    """Refuses text and numbers that no database keeps, wherever they stand, and endless nesting."""
    _check_depth(value, 0)
    return value


def _check_depth(value: Any, level: int) -> None:
    if level > MAX_DEPTH:
        raise ValueError(f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("contains the character U+0000, which can't be stored; remove it")
        if not is_unicode(value):
            raise ValueError("contains half of a surrogate pair, which isn't text; remove it")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("contains a number that JSON doesn't have: NaN, or an endless one")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_depth(key, level + 1)
            _check_depth(item, level + 1)
    elif isinstance(value, list):
        for item in value:
            _check_depth(item, level + 1)


def _written_out(value: Any) -> Any:
    """A bare number would be read as seconds since 1970, or as milliseconds: nobody says which."""
    if isinstance(value, str) and len(value) > MAX_TIME_LENGTH:
        raise ValueError(f"must have at most {MAX_TIME_LENGTH} characters")
    if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise ValueError("must be a time with its zone, such as 2026-01-31T09:30:00Z")
    return value


def _within_the_calendar(value: datetime) -> datetime:
    """No time zone may lead out of the years that Python and Postgres both have."""
    if not 1 < value.year < 9999:
        raise ValueError("must be a year between 2 and 9998")
    return value


Uuid = Annotated[
    str, Field(max_length=100, json_schema_extra={"format": "uuid"}), AfterValidator(_uuid)
]
Storable = BeforeValidator(_storable)
Str = Annotated[str, Storable]
JsonValue = Annotated[Any, Storable]
Metadata = Annotated[dict[str, Any], Storable]
Instant = Annotated[
    AwareDatetime, BeforeValidator(_written_out), AfterValidator(_within_the_calendar)
]
ListCursor = Annotated[str | None, Query(max_length=2000, description="`next_cursor` of a page.")]
ListLimit = Annotated[int, Query(ge=1, le=200, description="Of a page.")]
Seq = Annotated[int, Field(ge=0, le=2**63 - 1)]
Time = Annotated[datetime, PlainSerializer(format_timestamp, return_type=str)]


class Page(ResponseModel, Generic[T]):
    """A part of a list. Ask for the next with `?cursor=`, as long as `has_more`. It ends before `limit` where
    its items are large."""

    items: list[T]
    next_cursor: str | None
    has_more: bool

    @classmethod
    def of(
        cls,
        found: Slice[Row],
        *,
        show: Callable[[Row], T],
        cursor: Callable[[Row], str],
    ) -> Self:
        return cls(
            items=[show(row) for row in found],
            next_cursor=cursor(found[-1]) if found.has_more else None,
            has_more=found.has_more,
        )


class Problem(ResponseModel):
    """Every error: `code` is for programs and stays; `detail` says what to do."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    trace_id: str
    retryable: bool
    error: str
