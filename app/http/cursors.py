"""Cursors of lists: opaque, and good only for the query that they came from."""

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.domain.errors import BadCursor
from app.domain.ids import canonical_uuid
from app.domain.json_values import compact, digest

_LARGEST = 2**63 - 1


def encode(query: Mapping[str, Any], at: datetime, id: str) -> str:
    """A place in the order of one query's results, by time and id."""
    return _encode(query, {"at": at.isoformat(), "id": id})


def decode(query: Mapping[str, Any], cursor: str | None) -> tuple[datetime, str] | None:
    """The place that a cursor stands for, None for the beginning."""
    if cursor is None:
        return None
    body = _decode(query, cursor)
    try:
        at, id = datetime.fromisoformat(body["at"]), canonical_uuid(body["id"])
    except (ValueError, KeyError, TypeError):
        raise _not_a_cursor() from None
    # Postgres keeps no year but these, and no time zone may lead out of them.
    if id is None or at.tzinfo is None or not 1 < at.year < 9999:
        raise _not_a_cursor()
    return at, id


def encode_seq(query: Mapping[str, Any], seq: int) -> str:
    """A place in a numbered list."""
    return _encode(query, {"seq": seq})


def decode_seq(query: Mapping[str, Any], cursor: str | None) -> int | None:
    if cursor is None:
        return None
    seq = _decode(query, cursor).get("seq")
    if type(seq) is not int or not 0 <= seq <= _LARGEST:
        raise _not_a_cursor()
    return seq


def encode_pair(query: Mapping[str, Any], pair: tuple[int, int]) -> str:
    """A place in a list that is numbered twice over."""
    return _encode(query, {"pair": pair})


def decode_pair(query: Mapping[str, Any], cursor: str | None) -> tuple[int, int] | None:
    if cursor is None:
        return None
    match _decode(query, cursor).get("pair"):
        case [first, second] if all(
            type(each) is int and 0 <= each <= _LARGEST for each in (first, second)
        ):
            return first, second
    raise _not_a_cursor()


def _encode(query: Mapping[str, Any], place: Mapping[str, Any]) -> str:
    body = {"q": _name(query), **place}
    return base64.urlsafe_b64encode(compact(body).encode()).decode().rstrip("=")


def _decode(query: Mapping[str, Any], cursor: str) -> dict[str, Any]:
    try:
        body = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=="))
    except (ValueError, RecursionError):
        raise _not_a_cursor() from None
    if not isinstance(body, dict) or "q" not in body:
        raise _not_a_cursor()
    if body["q"] != _name(query):
        raise BadCursor(
            "cursor_mismatch",
            "This cursor belongs to a query with other filters; begin without one.",
        )
    return body


def _name(query: Mapping[str, Any]) -> str:
    return digest({key: str(value) for key, value in query.items() if value is not None})[-16:]


def _not_a_cursor() -> BadCursor:
    return BadCursor("cursor_invalid", "This isn't a cursor of this list.")
