"""The journey of a client whose connection is cut again and again: every id once, in order."""

from typing import Any

import pytest

from tests.support.streams import EVENT_STREAM, Client, Event, text_of, types_of

pytestmark = pytest.mark.anyio

WORDS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda my ny xi omikron pi rho " * 2
)


async def hear_with_cuts(client: Client, path: str, every: int, **params: Any) -> list[Event]:
    """Follow a path to its run's end, leaving after every so many frames."""
    heard: list[Event] = []
    while True:
        last_id = str(heard[-1]["seq"]) if heard else None
        async with client.events(path, last_id=last_id, **params) as stream:
            for _ in range(every):
                event = await stream.next()
                assert event is not None
                heard.append(event)
                if event["event_type"] == "run_finish":
                    return heard


async def has_nothing_more(client: Client, path: str, heard: list[Event]) -> None:
    """Whoever comes back after the end is told not to come again: an EventSource obeys a 204."""
    headers = EVENT_STREAM | {"Last-Event-ID": str(heard[-1]["seq"])}
    for address in (f"{path}/events", f"{path}/events/stream"):
        response = await client.http.get(address, headers=headers)
        assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("every", [1, 2, 3, 7])
async def test_a_run_is_heard_once_whatever_is_cut(client: Client, every: int) -> None:
    started = await client.start("talker", WORDS)
    path = f"/v1/runs/{started['run_id']}"
    heard = await hear_with_cuts(client, path, every)
    assert types_of(heard).count("text_delta") > 10, "it was to be cut in the middle of a message"
    assert heard == await client.log(path)
    assert text_of(heard) == (await client.run(started["run_id"]))["final_output"]
    await has_nothing_more(client, path, heard)


async def test_a_thread_is_heard_once_whatever_is_cut(client: Client) -> None:
    started = await client.start("talker", WORDS)
    path = f"/v1/threads/{started['thread_id']}"
    heard = await hear_with_cuts(client, path, 5)
    assert [event["seq"] for event in heard] == list(range(1, len(heard) + 1))
    assert heard == await client.log(path)


async def test_a_url_with_an_old_cursor_does_not_win_over_the_last_id(client: Client) -> None:
    """A browser keeps the address that it began with, and adds the header."""
    started = await client.start("talker", WORDS)
    path = f"/v1/runs/{started['run_id']}"
    heard = await hear_with_cuts(client, path, 5, after=1)
    assert heard == (await client.log(path))[1:]
    await has_nothing_more(client, path, heard)
