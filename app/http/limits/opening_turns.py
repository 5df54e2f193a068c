"""Streams that open take turns with other requests.

After a deploy thousands of clients reconnect at once. If all of their streams opened together, each other
request would wait for all of them.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 4
"""Streams that open at the same time; the others wait for their turn."""
TURN_SECONDS = 0.1
"""How long a stream may take to open before the next one begins. So a slow database delays each stream only once."""


class OpeningTurns:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._free = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _may_open_stream(scope):
            await self._app(scope, receive, send)
            return
        await self._free.acquire()
        turn = _Turn(self._free)

        async def send_and_end_turn(message: Message) -> None:
            turn.end()
            await send(message)

        try:
            await self._app(scope, receive, send_and_end_turn)
        finally:
            turn.end()


class _Turn:
    """One of the turns, until its response begins."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._is_over = False
        self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self.end)

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._free.release()


def _may_open_stream(scope: Scope) -> bool:
    """Whether it is a GET that asks for an event stream. A start isn't: its run shall begin now."""
    return scope["method"] == "GET" and any(
        name == b"accept" and b"event-stream" in value for name, value in scope["headers"]
    )
