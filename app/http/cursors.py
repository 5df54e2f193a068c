"""Cursors of lists. They are opaque, and valid only for the query that returned them."""

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from app.domain.errors import BadCursor
from app.domain.ids import canonical_uuid
from app.domain.json_values import compact, digest, is_unicode

_MAX_NUMBER = 2**63 - 1


def encode(query: Mapping[str, Any], at: datetime, id: str) -> str:
    """A cursor of a list that is sorted by time and id."""
    return _encode(query, {"at": at.isoformat(), "id": id})


def decode(query: Mapping[str, Any], cursor: str | None) -> tuple[datetime, str] | None:
    """The time and id of a cursor; None without one."""
    if cursor is None:
        return None
    body = _decode(query, cursor)
    try:
        at, id = datetime.fromisoformat(body["at"]), canonical_uuid(body["id"])
    except (ValueError, KeyError, TypeError):
        raise _not_a_cursor() from None
    # Conversion between time zones must not leave the years that Postgres stores.
    if id is None or at.tzinfo is None or not 1 < at.year < 9999:
        raise _not_a_cursor()
    return at, id


def encode_seq(query: Mapping[str, Any], seq: int) -> str:
    """A cursor of a list that is sorted by a number."""
    return _encode(query, {"seq": seq})


def decode_seq(query: Mapping[str, Any], cursor: str | None) -> int | None:
    if cursor is None:
        return None
    seq = _decode(query, cursor).get("seq")
    if type(seq) is not int or not 0 <= seq <= _MAX_NUMBER:
        raise _not_a_cursor()
    return seq


def encode_pair(query: Mapping[str, Any], pair: tuple[int, int]) -> str:
    """A cursor of a list that is sorted by two numbers."""
    return _encode(query, {"pair": pair})


def decode_pair(query: Mapping[str, Any], cursor: str | None) -> tuple[int, int] | None:
    if cursor is None:
        return None
    match _decode(query, cursor).get("pair"):
        case [first, second] if all(
            type(each) is int and 0 <= each <= _MAX_NUMBER for each in (first, second)
        ):
            return first, second
    raise _not_a_cursor()


def encode_texts(query: Mapping[str, Any], texts: Sequence[str]) -> str:
    """A cursor of a list that is sorted by some texts."""
    return _encode(query, {"texts": list(texts)})


def decode_texts(
    query: Mapping[str, Any], cursor: str | None, count: int, *, ids: Collection[int] = ()
) -> tuple[str, ...] | None:
    """`ids` are the places of texts that are ids."""
    if cursor is None:
        return None
    texts = _decode(query, cursor).get("texts")
    if not isinstance(texts, list) or len(texts) != count:
        raise _not_a_cursor()
    if not all(isinstance(each, str) and is_unicode(each) and "\0" not in each for each in texts):
        raise _not_a_cursor()
    if any(canonical_uuid(texts[place]) is None for place in ids):
        raise _not_a_cursor()
    return tuple(texts)


def _encode(query: Mapping[str, Any], position: Mapping[str, Any]) -> str:
    body = {"q": _name(query), **position}
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
            "This cursor belongs to a query with other filters. Begin without one.",
        )
    return body


def _name(query: Mapping[str, Any]) -> str:
    return digest({key: str(value) for key, value in query.items() if value is not None})[-16:]


def _not_a_cursor() -> BadCursor:
    return BadCursor("cursor_invalid", "This isn't a cursor of this list. Begin without one.")
