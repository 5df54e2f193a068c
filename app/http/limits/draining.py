"""A server that is about to go, as its clients see it: first no longer ready, then closing.

While it is announced, load balancers look elsewhere for whoever comes, and everything is still answered:
what is started goes to other replicas. Then it is under way: what would begin here is refused.
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
        """For requests that would begin something at a server that is closing."""
        if self.is_under_way:
            raise Unavailable(
                "draining",
                "This server is stopping. Send the request again: another one will take it.",
            )


class CloseWhileDraining:
    """Whoever is answered while the server is about to go is told to ask over another connection."""

    def __init__(self, app: ASGIApp, drain_state: DrainState) -> None:
        self._app = app
        self._departure = drain_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._departure.is_announced:
            await self._app(scope, receive, send)
            return

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (b"connection", b"close")]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_last)
