"""Text that imitates SSE frames stays text, for every kind of SSE parser."""

import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.ids import RunId, ThreadId
from app.domain.json_values import compact
from app.events.sse_encoding import encoded
from tests.support.envelopes import Envelope
from tests.support.servers import Server
from tests.support.streams import EVENT_STREAM, WHOLE_LOG, Client
from tests.surface.conftest import OURS
from tests.surface.examples import generated

pytestmark = pytest.mark.anyio

FORGED = 'id: 999999\ndata: {"seq":999999,"event_type":"run_finish"}'
HOSTILE_TEXTS = [
    f"\n\n{FORGED}\n\n",
    f"\r\r{FORGED}\r\r",
    f"\r\n\r\n{FORGED}\r\n\r\n",
    f"\u2028\u2028{FORGED}\u2029\u2029",
    f"\x85\x85{FORGED}\x0b\x0c\x1c\x1d\x1e",
    "event: error\n: heartbeat\nretry: 1\nid:\ndata:\n\n",
    '"}\n\ndata: {"seq":1}\n\n{"',
    "\ufeffdata: x",
]


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client(OURS) as ours:
        yield ours


# --- readers --------------------------------------------------------------------------------------

Event = tuple[str | None, str]


def by_the_standard(stream: str) -> list[Event]:
    """Lines end with CR, LF or both."""
    return _events(re.split(r"\r\n|\r|\n", stream))


def by_any_line_break(stream: str) -> list[Event]:
    """Like parsers that use their language's line splitting, which knows a dozen line breaks."""
    return _events(stream.splitlines())


def by_blocks(stream: str) -> list[Event]:
    """Like parsers that split at empty lines, and then search for fields."""
    found: list[Event] = []
    for block in stream.split("\n\n"):
        ids = re.findall(r"^id: ?(.*)$", block, re.MULTILINE)
        data = re.findall(r"^data: ?(.*)$", block, re.MULTILINE)
        found += [(ids[0] if ids else None, "\n".join(data))] if data else []
    return found


READERS: dict[str, Callable[[str], list[Event]]] = {
    "by the standard": by_the_standard,
    "by any line break": by_any_line_break,
    "by blocks": by_blocks,
}


def _events(lines: list[str]) -> list[Event]:
    found: list[Event] = []
    id: str | None = None
    data: list[str] = []
    for line in [*lines, ""]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line == "" and data:
            found.append((id, "\n".join(data)))
            data = []
        elif name == "data":
            data.append(value)
        elif name == "id":
            id = value
        else:
            assert line == "" or name in ("", "retry"), line
    return found


# --- tests ----------------------------------------------------------------------------------------


async def test_hostile_texts_forge_no_event_for_any_parser(client: Client) -> None:
    thread = (await client.post("/v1/threads", {}, 201))["id"]
    for text in HOSTILE_TEXTS:
        prompt = f"CALL risky {json.dumps({'what': text})}"
        started = await client.start("quick", prompt, thread_id=thread)
        run = await client.settled(started["id"])
        await client.decide(run, "approve", reason=text)
        await client.settled(run["id"])
        await client.settled((await client.start("quick", text, thread_id=thread))["id"])
        waiting = await client.settled(
            (await client.start("quick", prompt, thread_id=thread))["id"]
        )
        await client.post(f"/v1/runs/{waiting['id']}/cancel", {"reason": text})
        await client.settled(waiting["id"])
    events = await client.log(f"/v1/threads/{thread}")
    stream = await whole_stream(client, thread, str(events[-1]["seq"]))
    for read in READERS.values():
        envelope = Envelope()
        assert [envelope.restore(*frame) for frame in read(stream)] == events
    logged = json.dumps(events)
    assert all(json.dumps(text)[1:-1] in logged for text in HOSTILE_TEXTS[:4])


async def whole_stream(client: Client, thread: str, last_id: str) -> str:
    """The bytes of the stream, up to the frame of the last event."""
    path, received = f"/v1/threads/{thread}/events", bytearray()
    async with client.http.stream("GET", path, headers=EVENT_STREAM, params=WHOLE_LOG) as response:
        async for piece in response.aiter_bytes():
            received += piece
            frame = received.rfind(b"id: %s\n" % last_id.encode())
            if frame >= 0 and received.endswith(b"\n\n") and received.find(b"data:", frame) >= 0:
                break
    return received.decode()


@generated
@given(value=st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=40), max_size=4))
def test_no_text_breaks_out_of_its_frame(value: dict[str, Any]) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    frame = encoded(7, at, ThreadId("t"), RunId("r"), 1, "text_delta", _body(value))
    for stream in (frame.whole.decode(), frame.short.decode()):
        for read in READERS.values():
            [(id, data)] = read(stream)
            assert id == "7"
            assert json.loads(data)["value"] == value


def _body(value: dict[str, Any]) -> str:
    clean = json.loads(json.dumps(value))
    return compact({"value": clean})
