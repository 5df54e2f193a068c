"""A client whose connection is cut again and again: it receives every id once, in order."""

from typing import Any

import pytest

from tests.support.streams import EVENT_STREAM, Client, Event, text_of, types_of

pytestmark = pytest.mark.anyio

WORDS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda my ny xi omikron pi rho " * 2
)


async def read_with_cuts(client: Client, path: str, every: int, **params: Any) -> list[Event]:
    """Read the stream to the run's end, reconnecting after every `every` events."""
    received: list[Event] = []
    while True:
        last_id = str(received[-1]["seq"]) if received else None
        async with client.events(path, last_id=last_id, **params) as stream:
            for _ in range(every):
                event = await stream.next()
                assert event is not None
                received.append(event)
                if event["event_type"] == "run_finish":
                    return received


async def has_nothing_more(client: Client, path: str, received: list[Event]) -> None:
    """A reconnect after the end is answered 204, which stops an EventSource."""
    headers = EVENT_STREAM | {"Last-Event-ID": str(received[-1]["seq"])}
    response = await client.http.get(f"{path}/events", headers=headers)
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("every", [1, 2, 3, 7])
async def test_a_reader_of_a_run_gets_each_event_once_across_reconnects(
    client: Client, every: int
) -> None:
    started = await client.start("talker", WORDS)
    path = f"/v1/runs/{started['id']}"
    received = await read_with_cuts(client, path, every)
    assert types_of(received).count("text_delta") > 10, (
        "the stream was not cut in the middle of a message"
    )
    assert received == await client.log(path)
    assert text_of(received) == (await client.run(started["id"]))["final_output"]
    await has_nothing_more(client, path, received)


async def test_a_reader_of_a_thread_gets_each_event_once_across_reconnects(client: Client) -> None:
    started = await client.start("talker", WORDS)
    path = f"/v1/threads/{started['thread_id']}"
    received = await read_with_cuts(client, path, 5)
    assert [event["seq"] for event in received] == list(range(1, len(received) + 1))
    assert received == await client.log(path)


async def test_the_last_event_id_wins_over_the_cursor_in_the_url(client: Client) -> None:
    """A browser reconnects to its first URL, and adds the header."""
    started = await client.start("talker", WORDS)
    path = f"/v1/runs/{started['id']}"
    received = await read_with_cuts(client, path, 5, cursor=1)
    assert received == (await client.log(path))[1:]
    await has_nothing_more(client, path, received)
