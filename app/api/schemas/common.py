"""What all shapes share: strict requests, checked text, ids, pages and times."""

from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
)

from app.domain.ids import canonical_uuid
from app.domain.times import wire_time

T = TypeVar("T")

MOST_LEVELS = 50


class Request(BaseModel):
    """A typo in a field's name must not silently mean the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


def _uuid(value: str) -> str:
    found = canonical_uuid(value)
    if found is None:
        raise ValueError("must be a UUID, such as 01932c07-2b6a-7c3e-9d4f-6a1b2c3d4e5f")
    return found


def _storable(value: Any) -> Any:
    """Refuses text that no database keeps, wherever it stands, and nesting without end."""
    _look(value, 0)
    return value


def _look(value: Any, level: int) -> None:
    if level > MOST_LEVELS:
        raise ValueError(f"is nested deeper than {MOST_LEVELS} levels")
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("contains the character U+0000, which can't be stored; remove it")
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise ValueError("contains half of a surrogate pair, which isn't text; remove it")
    elif isinstance(value, dict):
        for key, item in value.items():
            _look(key, level + 1)
            _look(item, level + 1)
    elif isinstance(value, list):
        for item in value:
            _look(item, level + 1)


Uuid = Annotated[str, Field(max_length=100), AfterValidator(_uuid)]
Storable = BeforeValidator(_storable)
Str = Annotated[str, Storable]
JsonValue = Annotated[Any, Storable]
Metadata = Annotated[dict[str, Any], Storable]
Time = Annotated[datetime, PlainSerializer(wire_time, return_type=str)]


class Page(Answer, Generic[T]):
    """A part of a list. Ask for the next with `?cursor=`, as long as `has_more`."""

    items: list[T]
    next_cursor: str | None
    has_more: bool


class Problem(Answer):
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
