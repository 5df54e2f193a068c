"""A reader of one event stream that reconnects until the stream has ended."""

from dataclasses import dataclass, field

import httpx2

from tests.support.envelopes import Envelope
from tests.support.streams import EVENT_STREAM, TIMEOUT_SECONDS, Event


@dataclass(slots=True)
class Received:
    """The events of a reader, and the status that ended its reconnects."""

    events: list[Event] = field(default_factory=list)
    connections: int = 0
    status: int = 0
    _envelope: Envelope = field(default_factory=Envelope)

    def take(self, id: str, data: str) -> None:
        self.events.append(self._envelope.restore(id, data))


async def httpx2_event_source(url: str, received: Received) -> Received:
    async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as http:
        while True:
            headers = EVENT_STREAM | since(received)
            try:
                async with http.stream("GET", url, headers=headers) as response:
                    if response.status_code != 200:
                        received.status = response.status_code
                        return received
                    received.connections += 1
                    async for sse in httpx2.EventSource(response):
                        if sse.data:
                            received.take(sse.id, sse.data)
            except httpx2.TransportError:
                continue


def since(received: Received) -> dict[str, str]:
    """The `Last-Event-ID` header of its reconnect."""
    return {"Last-Event-ID": str(received.events[-1]["seq"])} if received.events else {}
