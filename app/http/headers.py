"""Request headers: content negotiation, waiting, tracing, and what must be refused."""

import hashlib
import re

from fastapi import Request, Response

from app.domain.errors import Invalid, Unreadable, UnsupportedMedia
from app.http.idempotency_key import keeps_keys
from app.http.request_log import given_request_id
from app.http.routing.json_body import is_json, json_body, media_type

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_QUALITY = re.compile(r";\s*q\s*=\s*([\d.]+)\s*$", re.IGNORECASE)
_WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def wants_event_stream(request: Request) -> bool:
    """Whether `Accept` names `text/event-stream` and doesn't prefer JSON."""
    accepted = qualities(",".join(request.headers.getlist("accept")))
    stream = accepted.get("text/event-stream", 0.0)
    return stream > 0 and stream >= accepted.get("application/json", 0.0)


def traceparent(request: Request) -> str | None:
    """The caller's `traceparent`; None if it is missing or malformed."""
    given = request.headers.get("traceparent", "")
    return given if _TRACEPARENT.fullmatch(given) else None


def transport_request_id(request: Request) -> str | None:
    """The caller's X-Request-Id, for the run's record."""
    return given_request_id(request.scope)


def tagged(request: Request, body: bytes) -> Response:
    """A JSON response with an ETag; 304 if `If-None-Match` names it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    known = ",".join(request.headers.getlist("if-none-match"))
    if tag in (one.strip().removeprefix("W/") for one in known.split(",")):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, headers={"ETag": tag}, media_type="application/json")


async def require_readable(request: Request) -> None:
    """Refuses a body that isn't JSON or names a field twice, and a key where keys aren't supported."""
    if request.method not in _WRITING:
        return
    headers = request.headers
    if "idempotency-key" in headers and not keeps_keys(request):
        raise Invalid(
            "idempotency_key_unsupported",
            "This operation doesn't support Idempotency-Key. Send the request without it.",
        )
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    declared = media_type(request)
    if has_body and not is_json(declared):
        raise UnsupportedMedia(
            "unsupported_media_type",
            f"The body is {declared[:100] or 'of no declared type'}. Send JSON, with Content-Type: "
            "application/json.",
        )
    if has_body:
        await _require_names_once(request)


async def _require_names_once(request: Request) -> None:
    """Refuses a field that comes twice. A proxy might have checked the other value."""
    try:
        repeated = (await json_body(request)).repeated_name
    except (ValueError, RecursionError):
        # The route's validation reports what is wrong with this body.
        return
    if repeated is not None:
        raise Unreadable(
            "malformed_body", f"The body names {repeated[:100]!r} twice in one object."
        )


def qualities(accept: str) -> dict[str, float]:
    """The quality of each media range or encoding in lower case, from 0 to 1."""
    found_qualities: dict[str, float] = {}
    for one in accept.split(","):
        found = _QUALITY.search(one)
        try:
            quality = 1.0 if found is None else float(found[1])
        except ValueError:
            quality = 0.0
        found_qualities[one.partition(";")[0].strip().lower()] = quality
    return found_qualities
