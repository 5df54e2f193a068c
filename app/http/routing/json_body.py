"""The body of a request as JSON, parsed once."""

import json
import re
from typing import Any

from fastapi import Request
from msgspec import Struct

_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)


class JsonBody(Struct, frozen=True):
    value: Any
    repeated_name: str | None
    """A name that comes twice in one object."""


def media_type(request: Request) -> str:
    """The declared media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip()


def is_json(media_type: str) -> bool:
    return _JSON.fullmatch(media_type) is not None


async def json_body(request: Request) -> JsonBody:
    """Raises ValueError or RecursionError if it can't be parsed."""
    state = request.scope.setdefault("state", {})
    parsed: JsonBody | None = state.get("json_body")
    if parsed is None:
        names = _Names()
        value = json.loads(await request.body(), object_pairs_hook=names.object_of)
        parsed = state["json_body"] = JsonBody(value, names.repeated)
    return parsed


class _Names:
    """Finds a name that comes twice in one object."""

    def __init__(self) -> None:
        self.repeated: str | None = None

    def object_of(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs) and self.repeated is None:
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    self.repeated = name
                    break
                seen.add(name)
        return found
