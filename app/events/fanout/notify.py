"""Hints over Postgres itself: NOTIFY, in statements that write nothing, and one connection that LISTENs."""

from collections.abc import Callable, Mapping, Sequence

from app.events.fanout.relay import Handler, Hint, Topic, TransportUnavailable
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.notifications import LARGEST_PAYLOAD, listen, notify


class NotifyTransport:
    name = "notify"
    max_payload_bytes = LARGEST_PAYLOAD

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, topic: Topic, hints: Sequence[Hint]) -> None:
        try:
            await notify(self._database.pool, _channel(topic), [hint.payload for hint in hints])
        except DATABASE_UNAVAILABLE as error:
            raise TransportUnavailable(type(error).__name__) from error

    async def listen(
        self, handlers: Mapping[Topic, Handler], *, on_connected: Callable[[], None]
    ) -> None:
        channels = {_channel(topic): handle for topic, handle in handlers.items()}
        try:
            await listen(self._database, channels, on_connected=on_connected)
        except DATABASE_UNAVAILABLE as error:
            raise TransportUnavailable(repr(error)[:200]) from error


def _channel(topic: Topic) -> str:
    return f"holdfast_{topic}"
