"""Base classes and types of all schemas: strict requests, storable text, ids, pages and times."""

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
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
"""Larger than any request has."""
MAX_TIME_LENGTH = 100

_NUMBER = re.compile(r"\s*[+-]?[\d_]*(\.[\d_]*)?(e[+-]?\d+)?\s*", re.IGNORECASE)


class RequestModel(BaseModel):
    """A request body. Unknown fields are refused, so that a typo doesn't mean the default.

    Lists have `fail_fast`: validation stops at the first wrong item, because thousands of errors take long to describe.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, fields: Any) -> Any:
        """Limits the errors for unknown fields, because each takes time to describe."""
        if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
            raise ValueError(f"has more than {MAX_FIELDS} fields; it takes {_names_of(cls)}")
        return fields


def _names_of(request: type[BaseModel]) -> str:
    return ", ".join(request.model_fields)


class ResponseModel(BaseModel):
    """A response. `model_validate` reads the attributes of a domain object; an alias names the attribute
    where it differs from the field."""

    model_config = ConfigDict(frozen=True, from_attributes=True, populate_by_name=True)


def is_absent(value: object) -> bool:
    """For `exclude_if`: a field without a value isn't in the response."""
    return value is None


def _uuid(value: str) -> str:
    found = canonical_uuid(value)
    if found is None:
        raise ValueError("must be a UUID, such as 01932c07-2b6a-7c3e-9d4f-6a1b2c3d4e5f")
    return found


def _storable(value: Any) -> Any:
    """Refuses text and numbers that Postgres can't store, on all levels, and deep nesting."""
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
            raise ValueError("contains a number that JSON doesn't have: NaN or an infinite one")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_depth(key, level + 1)
            _check_depth(item, level + 1)
    elif isinstance(value, list):
        for item in value:
            _check_depth(item, level + 1)


def _require_written_time(value: Any) -> Any:
    """Refuses bare numbers, which could mean seconds or milliseconds since 1970."""
    if isinstance(value, str) and len(value) > MAX_TIME_LENGTH:
        raise ValueError(f"must have at most {MAX_TIME_LENGTH} characters")
    if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        raise ValueError("must be a time with its zone, such as 2026-01-31T09:30:00Z")
    return value


def _require_year(value: datetime) -> datetime:
    """Conversion between time zones must not leave the years of Python and Postgres."""
    if not 1 < value.year < 9999:
        raise ValueError("must be a year between 2 and 9998")
    return value


Uuid = Annotated[
    str,
    Field(max_length=100),
    AfterValidator(_uuid),
    WithJsonSchema({"type": "string", "format": "uuid"}),
]
Storable = BeforeValidator(_storable)
Str = Annotated[str, Storable]
JsonValue = Annotated[Any, Storable]
Metadata = Annotated[dict[str, Any], Storable]
Instant = Annotated[
    AwareDatetime, BeforeValidator(_require_written_time), AfterValidator(_require_year)
]
Seq = Annotated[int, Field(ge=0, le=2**63 - 1)]
Time = Annotated[
    datetime,
    PlainSerializer(format_timestamp, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]


class Page(ResponseModel, Generic[T]):
    """A page of a list. Get the next one with `?cursor=` while `has_more`. Large items may shorten a
    page."""

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
    """An error. `code` is stable and for programs; `detail` says what to do."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    trace_id: str
    retryable: bool
