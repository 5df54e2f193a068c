"""The bytes of a file as a response: whole, or one range. Browsers never show them as a page."""

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from app.context import ServiceContext
from app.domain.files.files import StoredFile
from app.domain.ids import Tenant
from app.queries.files.reading import bytes_of

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def file_headers(file: StoredFile) -> dict[str, str]:
    """Headers of every response with the bytes. They let no browser run what a file contains."""
    name = quote(file.name or file.id, safe="")
    return {
        "ETag": f'"{file.sha256}"',
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-transform",
    }


async def content_response(
    request: Request, ctx: ServiceContext, tenant: Tenant, file: StoredFile
) -> Response:
    """The response to GET or HEAD."""
    headers = file_headers(file)
    known = ",".join(request.headers.getlist("if-none-match"))
    if headers["ETag"] in (one.strip().removeprefix("W/") for one in known.split(",")):
        return Response(status_code=304, headers=headers)
    range_ = _wanted_range(request, file, headers["ETag"])
    first, last = range_ or (0, file.size - 1)
    headers["Content-Length"] = str(last + 1 - first)
    if range_ is not None:
        headers["Content-Range"] = f"bytes {first}-{last}/{file.size}"
    status = 200 if range_ is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=file.media_type)
    pieces = bytes_of(ctx.file_bytes, tenant, file, first, last)
    # Read before the headers are sent, so that an outage is answered with 503.
    beginning = await anext(pieces)
    body = _with_beginning(beginning, pieces)
    return StreamingResponse(body, status, headers, media_type=file.media_type)


async def _with_beginning(beginning: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield beginning
    async for piece in rest:
        yield piece


def _wanted_range(request: Request, file: StoredFile, tag: str) -> tuple[int, int] | None:
    """The first and last byte. None for all, also if the header has no range of this file."""
    match = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if match is None or request.headers.get("if-range", tag) != tag:
        return None
    begin, end = match.groups()
    if not begin:
        length = int(end or 0)
        return (max(0, file.size - length), file.size - 1) if length else None
    if (end and int(end) < int(begin)) or int(begin) >= file.size:
        return None
    return int(begin), min(int(end), file.size - 1) if end else file.size - 1
