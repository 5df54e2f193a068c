"""A reader of one event stream that comes back by itself, as often as it takes, until nothing is left."""

import json
from dataclasses import dataclass, field

import httpx2

from tests.support.streams import EVENT_STREAM, PATIENCE, Event


@dataclass(slots=True)
class Heard:
    """What a reader was given, and the status that sent it home."""

    events: list[Event] = field(default_factory=list)
    connections: int = 0
    status: int = 0

    def take(self, id: str, data: str) -> None:
        event = json.loads(data)
        assert id == str(event["seq"])
        self.events.append(event)


async def httpx2_event_source(url: str, heard: Heard) -> Heard:
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        while True:
            headers = EVENT_STREAM | since(heard)
            try:
                async with http.stream("GET", url, headers=headers) as response:
                    if response.status_code != 200:
                        heard.status = response.status_code
                        return heard
                    heard.connections += 1
                    async for sse in httpx2.EventSource(response):
                        if sse.data:
                            heard.take(sse.id, sse.data)
            except httpx2.TransportError:
                continue


def since(heard: Heard) -> dict[str, str]:
    """The header with which it comes back."""
    return {"Last-Event-ID": str(heard.events[-1]["seq"])} if heard.events else {}
