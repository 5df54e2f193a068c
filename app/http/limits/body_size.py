"""Size limits of addresses, queries and bodies, checked before anything parses them."""

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.errors import Refusal, TooLarge
from app.http.errors import problem, refusal
from app.http.limits.json_bounds import problem_of_json

MAX_PATH_LENGTH = 2_000
MAX_QUERY_LENGTH = 8_000
"""Both count bytes as sent, with escapes."""
UPLOADS = "/v1/files"
"""The route whose body is a file, which has a limit of its own."""


FORM_BYTES = 131_072
"""Of an upload as a form, besides the file."""


class BoundedBody:
    """Refuses a request as soon as one of its parts is too large.

    A compressed body is refused, because its size isn't known before it is decompressed.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, max_file_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_file_bytes = max_file_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if (too_long := _target_too_long(request)) is not None:
            await too_long(scope, receive, send)
            return
        is_upload = scope["method"] == "POST" and scope["path"] == UPLOADS
        max_bytes = self._max_bytes
        if is_upload:
            is_form = request.headers.get("content-type", "").lower().startswith("multipart/")
            max_bytes = self._max_file_bytes + (FORM_BYTES if is_form else 0)
        declared = request.headers.get("content-length", "0")
        if not _is_at_most(declared, max_bytes):
            await refusal(request, _too_large(max_bytes))(scope, receive, send)
            return
        encoding = request.headers.get("content-encoding", "identity")
        if encoding.strip().lower() != "identity" and (
            declared != "0" or "transfer-encoding" in request.headers
        ):
            sentence = f"The body's Content-Encoding is {encoding[:100]}. Send it uncompressed."
            response = problem(request, 415, "unsupported_media_type", sentence)
            await response(scope, receive, send)
            return
        body = _Body(request, receive, max_bytes, is_json=not is_upload)

        async def send_unless_refused(message: Message) -> None:
            if body.refused is None:
                await send(message)

        try:
            await self._app(scope, body.receive, send_unless_refused)
        except ClientDisconnect:
            if body.refused is None:
                raise
        if body.refused is not None:
            await refusal(request, body.refused)(scope, receive, send)


class _Body:
    """Checks the body of a request while it passes it to the application."""

    def __init__(
        self, request: Request, receive: Receive, max_bytes: int, *, is_json: bool
    ) -> None:
        self.refused: Refusal | None = None
        self._receive = receive
        self._max_bytes = max_bytes
        self._is_json = is_json and "json" in request.headers.get("content-type", "").lower()
        self._received = 0
        self._pieces: list[bytes] = []

    async def receive(self) -> Message:
        message = await self._receive()
        if self.refused is None and message["type"] == "http.request":
            self.refused = self._problem_with(message)
        # The application sees a disconnect. Its response is replaced by the refusal.
        return message if self.refused is None else {"type": "http.disconnect"}

    def _problem_with(self, message: Message) -> Refusal | None:
        piece = message.get("body", b"")
        self._received += len(piece)
        if self._received > self._max_bytes:
            return _too_large(self._max_bytes)
        if self._is_json:
            self._pieces.append(piece)
            if not message.get("more_body", False):
                return problem_of_json(b"".join(self._pieces))
        return None


def _too_large(max_bytes: int) -> TooLarge:
    sentence = f"The body is larger than {max_bytes} bytes. Send less, or send it in parts."
    return TooLarge("body_too_large", sentence)


def _target_too_long(request: Request) -> Response | None:
    path = request.scope.get("raw_path") or request.scope["path"].encode()
    if len(path) > MAX_PATH_LENGTH:
        sentence = f"The path is longer than {MAX_PATH_LENGTH} bytes, so it doesn't exist."
        return problem(request, 404, "not_found", sentence)
    if len(request.scope["query_string"]) > MAX_QUERY_LENGTH:
        sentence = (
            f"The query is longer than {MAX_QUERY_LENGTH} bytes. Use fewer or shorter parameters."
        )
        return problem(request, 422, "invalid_request", sentence)
    return None


def _is_at_most(number: str, most: int) -> bool:
    return number.isascii() and number.isdigit() and len(number) <= 18 and int(number) <= most
