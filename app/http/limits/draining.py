"""The two steps of a graceful stop: draining is announced, then under way.

Once it is announced, /health returns 503 and all requests are still served, so that load balancers can
react. Once it is under way, new runs are refused.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.errors import Unavailable


class DrainState:
    def __init__(self) -> None:
        self.is_announced = False
        self.is_under_way = False

    def announce(self) -> None:
        self.is_announced = True

    def begin(self) -> None:
        self.is_announced = self.is_under_way = True

    def refuse_new_work(self) -> None:
        """Raises `draining` once the stop is under way."""
        if self.is_under_way:
            raise Unavailable(
                "draining",
                "This server is stopping. Send the request again; another server will take it.",
            )


class CloseWhileDraining:
    """Adds `Connection: close` to responses while the server drains."""

    def __init__(self, app: ASGIApp, drain_state: DrainState) -> None:
        self._app = app
        self._drain_state = drain_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._drain_state.is_announced:
            await self._app(scope, receive, send)
            return

        async def send_with_close(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_with_close)
