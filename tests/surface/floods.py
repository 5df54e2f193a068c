"""Requests that cost the server more than their sender, up to every limit."""

import json
from collections.abc import Iterator
from typing import Any

from app.http.limits.body_size import MAX_PATH_LENGTH, MAX_QUERY_LENGTH
from app.http.limits.json_bounds import MAX_NUMBER_LENGTH, MAX_VALUES
from tests.support.routes import BODIES, Route
from tests.surface.document import DOCUMENT

BODY_BYTES = 1_990_000
MANY = MAX_VALUES - 100
"""The largest number of JSON values that the limit accepts."""
VALUES: dict[str, bytes] = {
    "numbers": b"[" + b",".join([b"0"] * MANY) + b"]",
    "fractions": b"[" + b",".join([b"1." + b"9" * 80] * MANY) + b"]",
    "long numbers": b"["
    + b",".join([b"9" * MAX_NUMBER_LENGTH] * (BODY_BYTES // (MAX_NUMBER_LENGTH + 2)))
    + b"]",
    "longer numbers": b"[" + b",".join([b"9" * 4000] * (BODY_BYTES // 4002)) + b"]",
    "empty objects": b"[" + b",".join([b"{}"] * (MANY // 2)) + b"]",
    "more empty objects": b"[" + b",".join([b"{}"] * (BODY_BYTES // 4)) + b"]",
    "empty texts": b"[" + b",".join([b'""'] * MANY) + b"]",
    "names": b"{" + b",".join(b'"%060x":0' % name for name in range(MANY)) + b"}",
    "repeated names": b"{" + b",".join([b'"a":0'] * MANY) + b"}",
    "levels": b"[" * (MANY // 2) + b"]" * (MANY // 2),
    "trees": b"[" + b",".join([b"[" * 40 + b"]" * 40] * (MANY // 41)) + b"]",
    "text": b'"' + b"x" * BODY_BYTES + b'"',
    "text of two bytes each": b'"' + "é".encode() * (BODY_BYTES // 2) + b'"',
    "line separators": b'"' + "\u2028".encode() * (BODY_BYTES // 3) + b'"',
    "surrogates": b'"' + rb"\ud800" * (BODY_BYTES // 6) + b'"',
    "pairs of surrogates": b'"' + rb"\ud83d\ude00" * (BODY_BYTES // 12) + b'"',
    "quotation marks": b'"' + rb"\"" * (BODY_BYTES // 2) + b'"',
    "backslashes": b'"' + rb"\\" * (BODY_BYTES // 2) + b'"',
    "commas": b'"' + b",[{" * (BODY_BYTES // 3) + b'"',
    "digits": b'"' + b"1" * BODY_BYTES + b'"',
    "spaces": b"[" + b" " * BODY_BYTES + b"]",
}
"""Values for any field."""
_FREE = ("metadata", "payload")
"""Fields that take any JSON."""


def bodies_of(route: Route) -> Iterator[tuple[str, bytes]]:
    """Bodies for one route: valid ones in which one field is a flood, and floods alone."""
    good = BODIES.get((route.method, route.path), {})
    for what in ("numbers", "names", "levels"):
        yield what, VALUES[what]
    for field in _fields_of(route):
        # A field of a narrow type refuses every value in the same way.
        for what in VALUES if field in _FREE else ("numbers", "text", "surrogates"):
            value = VALUES[what]
            others = {name: one for name, one in good.items() if name != field}
            yield (
                f"{what} in {field}",
                json.dumps({**others, field: 0})[:-2].encode() + value + b"}",
            )
    fields = {f"field_{number}": 0 for number in range(90)}
    yield "unknown fields", json.dumps({**good, **fields}).encode()
    for what, messages in _MESSAGES.items():
        if "messages" in good:
            yield what, json.dumps({**good, "messages": messages}).encode()
    if "decisions" in good:
        answer = {"ticket_id": "x", "action": "respond", "result": [0] * (MANY // 105)}
        yield "decisions", json.dumps({"decisions": [answer] * 100}).encode()
    if "inputs" in good:
        yield "places", json.dumps({"inputs": good["inputs"] * 1000}).encode()
        yield "bad places", json.dumps({"inputs": [{"id": 1, "x": 1}] * 1000}).encode()


def _message(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


_PART = {"type": "text", "text": "x"}
_MESSAGES: dict[str, list[Any]] = {
    "messages": [_message("x" * 1_900)] * 1000,
    "parts": [_message([_PART] * 60)] * (MANY // 184),
    "bad parts": [_message([{"type": "x", "text": 1}] * 60)] * (MANY // 184),
    "parts without text": [_message([{"type": "text", "x": 1, "y": 2}] * 60)] * (MANY // 250),
    "more parts than the limit": [_message([_PART] * (MANY // 4))],
    "addresses": [
        _message(
            [{"type": "image", "source": {"type": "url", "url": "http://a/" + "b" * 300}}] * 50
        )
    ]
    * (MANY // 260),
    "pictures": [
        _message(
            [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "A" * 900_000},
                }
            ]
        )
    ]
    * 2,
    "unknown fields of messages": [_message("x", **{f"field_{number}": 0 for number in range(15)})]
    * 999,
    "empty messages": [{}] * 999,
}


def _fields_of(route: Route) -> list[str]:
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    if "application/json" not in operation.get("requestBody", {}).get("content", {}):
        return []
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    [reference] = [one for one in (schema, *schema.get("anyOf", ())) if "$ref" in one]
    name = reference["$ref"].rpartition("/")[2]
    return list(DOCUMENT["components"]["schemas"][name]["properties"])


TEXTS = {
    "digits": "1" * (MAX_QUERY_LENGTH - 100),
    "digits and a letter": "1" * (MAX_QUERY_LENGTH - 100) + "x",
    "many digits": "1" * 16_000,
    "underscores": "_" * 98 + "x",
    "escapes": "%C3%A9" * ((MAX_QUERY_LENGTH - 100) // 6),
    "commas": "," * (MAX_QUERY_LENGTH - 100),
    "signs": "+-" * ((MAX_QUERY_LENGTH - 100) // 2),
    "zeros of a time": "2026-01-01T00:00:00." + "0" * 70 + "Z",
    "base64": "eyJx" * 499,
    "brackets": "W1tb" * 499,
}
"""Values for any query parameter."""


def queries_of(route: Route) -> Iterator[tuple[str, str]]:
    """Queries for one route."""
    operation = DOCUMENT["paths"][route.path][route.method.lower()]
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query":
            is_time = "date-time" in json.dumps(parameter)
            for what in TEXTS if is_time else ("digits", "escapes", "commas"):
                text = TEXTS[what]
                yield f"{what} in {parameter['name']}", f"{parameter['name']}={text}"
    yield "unknown parameters", "&".join(["a"] * (MAX_QUERY_LENGTH // 2))
    yield "more unknown parameters", "&".join(["a"] * 30_000)
    filters = (f"metadata.{number}=1" for number in range(MAX_QUERY_LENGTH // 20))
    yield "filters", "&".join(filters)


PATHS = {
    "a long id": "a" * (MAX_PATH_LENGTH - 100),
    "a longer id": "a" * 60_000,
    "escapes": "%41" * ((MAX_PATH_LENGTH - 100) // 3),
    "more escapes": "%C3%A9" * 10_000,
    "slashes": "/a" * ((MAX_PATH_LENGTH - 100) // 2),
    "more slashes": "/" * 60_000,
}
"""Values for any id in a path."""

HEADERS = {
    "Accept": [
        "," * 60_000,
        "a;q=0.5," * 7_000,
        ";q=" * 20_000,
        "application/json;q=" + "1" * 60_000,
    ],
    "Accept-Encoding": ["," * 60_000, "gzip," * 12_000, "gzip;q=" * 9_000, "gzip" + " " * 60_000],
    "Authorization": ["Bearer " + "x" * 60_000],
    "Content-Encoding": ["," * 60_000],
    "Content-Type": ["application/json" + ";a=b" * 15_000, "a/" * 30_000],
    "Cookie": ["a=b;" * 15_000],
    "If-Match": ['"' + "1" * 60_000 + '"'],
    "If-None-Match": ["," * 60_000, 'W/"a",' * 10_000],
    "Idempotency-Key": ["k" * 60_000],
    "Last-Event-ID": ["1" * 60_000, "²" * 30_000],
    "Origin": ["1:" * 30_000, "http://[" + ":" * 60_000],
    "Prefer": ["wait " * 12_000, "wait=" + "1" * 60_000, "wait" + " " * 60_000],
    "traceparent": ["0" * 60_000],
    "X-Many": ["1\r\nX-Many: " * 5_000],
}
