"""Responses to requests that a stopping server cancels.

Without this, uvicorn answers 500, which clients don't retry. The request may have taken effect.
"""

import asyncio

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.errors import problem
from app.http.request_log import record_of


class AbandonedRequests:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            record = record_of(scope)
            if record is not None and record.status is None:
                refused = problem(
                    Request(scope),
                    503,
                    "draining",
                    "This server is stopping and has cancelled the request, which may have taken effect. "
                    "Send it again with the same Idempotency-Key.",
                )
                await refused(scope, receive, send)
            raise
