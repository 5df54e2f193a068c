"""What request headers ask for: the kind of answer, how long to wait, and what isn't to be had."""

import hashlib
import json
import re
from typing import Any

from fastapi import Request, Response

from app.domain.errors import Invalid, Unreadable, UnsupportedMedia
from app.http.idempotency_key import keeps_keys

MAX_WAIT_SECONDS = 60

_WAIT = re.compile(r"\bwait\s*=\s*\"?(\d+)", re.IGNORECASE)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,198}[\x21-\x7e])?")
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)
_QUALITY = re.compile(r";\s*q\s*=\s*([\d.]+)\s*$", re.IGNORECASE)
_WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def wants_event_stream(request: Request) -> bool:
    """Whether an event stream is asked for by name, and nothing else is liked better."""
    liked = _qualities(",".join(request.headers.getlist("accept")))
    stream = liked.get("text/event-stream", 0.0)
    return stream > 0 and stream >= liked.get("application/json", 0.0)


def preferred_wait(request: Request) -> int | None:
    """The seconds of `Prefer: wait=N`, at most as many as we hold a request open."""
    found = _WAIT.search(",".join(request.headers.getlist("prefer")))
    return None if found is None else min(int(found[1][:9]), MAX_WAIT_SECONDS)


def traceparent(request: Request) -> str | None:
    """The caller's trace, when there is one to join; anything else is nobody's error."""
    given = request.headers.get("traceparent", "")
    return given if _TRACEPARENT.fullmatch(given) else None


def transport_request_id(request: Request) -> str | None:
    """The caller's X-Request-Id, for the run's record. An id that isn't 1 to 200 printable ASCII
    characters is left out: a proxy may have set it."""
    given = request.headers.get("x-request-id", "").strip()
    return given if _REQUEST_ID.fullmatch(given) else None


def tagged(request: Request, body: bytes) -> Response:
    """A JSON answer that whoever has it already needn't be sent again."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    known = ",".join(request.headers.getlist("if-none-match"))
    if tag in (one.strip().removeprefix("W/") for one in known.split(",")):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, headers={"ETag": tag}, media_type="application/json")


async def require_readable(request: Request) -> None:
    """Refuses what would be misread: a body that isn't JSON, or a promise that we don't keep."""
    if request.method not in _WRITING:
        return
    headers = request.headers
    if "idempotency-key" in headers and not keeps_keys(request):
        raise Invalid(
            "idempotency_key_unsupported",
            "Idempotency-Key isn't kept here. Send this request without it.",
        )
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    media_type = headers.get("content-type", "").partition(";")[0].strip()
    if has_body and not _JSON.fullmatch(media_type):
        raise UnsupportedMedia(
            "unsupported_media_type",
            f"The body is {media_type[:100] or 'of no declared type'}. Send JSON, with Content-Type: "
            "application/json.",
        )
    if has_body:
        _require_names_once(await request.body())


def _require_names_once(body: bytes) -> None:
    """What has two values is read in two ways: by us, and by whoever has let it pass before."""
    try:
        json.loads(body, object_pairs_hook=_once)
    except _Twice as error:
        raise Unreadable(
            "malformed_body", f"The body names {str(error)[:100]!r} twice in one object."
        ) from None
    except (ValueError, RecursionError):
        # Whoever takes a body says what is wrong with this one.
        return


class _Twice(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Twice(name)
            seen.add(name)
    return found


def _qualities(accept: str) -> dict[str, float]:
    """How much each media range is liked, from 0 to 1."""
    liked: dict[str, float] = {}
    for one in accept.split(","):
        found = _QUALITY.search(one)
        try:
            quality = 1.0 if found is None else float(found[1])
        except ValueError:
            quality = 0.0
        liked[one.partition(";")[0].strip().lower()] = quality
    return liked
