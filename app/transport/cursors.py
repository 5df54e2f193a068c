"""Cursors of lists: opaque, and good only for the query that they came from."""

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.domain.errors import BadCursor
from app.domain.ids import canonical_uuid
from app.domain.json_values import compact, digest


def encode(query: Mapping[str, Any], at: datetime, id: str) -> str:
    """A place in the order of one query's results."""
    body = {"q": _name(query), "at": at.isoformat(), "id": id}
    return base64.urlsafe_b64encode(compact(body).encode()).decode().rstrip("=")


def decode(query: Mapping[str, Any], cursor: str | None) -> tuple[datetime, str] | None:
    """The place that a cursor stands for, None for the beginning."""
    if cursor is None:
        return None
    try:
        body = json.loads(base64.urlsafe_b64decode(cursor.encode() + b"=="))
        at, id, name = datetime.fromisoformat(body["at"]), canonical_uuid(body["id"]), body["q"]
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError):
        raise BadCursor("cursor_invalid", "This isn't a cursor of this list.") from None
    if id is None or at.tzinfo is None:
        raise BadCursor("cursor_invalid", "This isn't a cursor of this list.")
    if name != _name(query):
        raise BadCursor(
            "cursor_mismatch",
            "This cursor belongs to a query with other filters; begin without one.",
        )
    return at, id


def _name(query: Mapping[str, Any]) -> str:
    return digest({key: str(value) for key, value in query.items() if value is not None})[-16:]
