"""Requests that a stopping process gives up on: they are told so, if nothing was answered yet.

The server would say that something broke, which nobody sends again; what it was at may have happened or not.
"""

import asyncio

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.errors import problem


class AbandonedRequests:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_answered = False

        async def answered(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        try:
            await self._app(scope, receive, answered)
        except asyncio.CancelledError:
            if not is_answered:
                refused = problem(
                    Request(scope),
                    503,
                    "draining",
                    "This server is stopping and has given the request up. It may have had its effect: "
                    "send it again under the same Idempotency-Key, and another one will answer.",
                )
                await refused(scope, receive, send)
            raise
