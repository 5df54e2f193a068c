"""Bounds on bodies, kept before anything reads them: how long they are, and that nothing is packed in them."""

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.transport.errors import problem


class BoundedBody:
    """Refuses a body as soon as it is known to be too large, whether it says so or not.

    What is packed isn't unpacked: nobody knows before how large that gets.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        declared = request.headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > self._most_bytes:
            await self._refuse(request, receive, send)
            return
        packing = request.headers.get("content-encoding", "identity")
        if packing.strip().lower() != "identity" and (
            declared != "0" or "transfer-encoding" in request.headers
        ):
            sentence = f"The body's Content-Encoding is {packing[:100]}. Send it as it is."
            response = problem(request, 415, "unsupported_media_type", sentence)
            await response(scope, receive, send)
            return
        received = 0
        refused = False

        async def bounded() -> Message:
            nonlocal received, refused
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most_bytes:
                # Whoever reads the body sees its sender gone; what it answers is replaced below.
                refused = True
                return {"type": "http.disconnect"}
            return message

        async def answered(message: Message) -> None:
            if not refused:
                await send(message)

        try:
            await self._app(scope, bounded, answered)
        except ClientDisconnect:
            if not refused:
                raise
        if refused:
            await self._refuse(request, receive, send)

    async def _refuse(self, request: Request, receive: Receive, send: Send) -> None:
        response = problem(request, 413, "body_too_large", self._sentence())
        await response(request.scope, receive, send)

    def _sentence(self) -> str:
        return f"The body is larger than {self._most_bytes} bytes. Send less, or send it in parts."
