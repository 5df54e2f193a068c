"""A child's ticket reaches its parent's stream exactly once, although the server is killed while it is shown."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.clock import new_id
from tests.support.event_order import check_run
from tests.support.forwarders import Place, forwarding
from tests.support.servers import Server, serving
from tests.support.streams import Client, Event

pytestmark = pytest.mark.anyio

FAST_TAKEOVER = {"heartbeat_timeout": 1.0}
SHOWN = b'"child":{"run_id":'
"""Part of the events that the follow-up writes."""


@pytest.fixture(scope="module")
async def there(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """The server that runs through all tests."""
    async with serving(shared_database_url, agents=agents, **FAST_TAKEOVER) as running:
        yield running


@pytest.fixture
async def other(there: Server) -> AsyncIterator[Client]:
    async with there.client() as client:
        yield client


def below(log: list[Event], event_type: str) -> list[Event]:
    return [event for event in log if event["event_type"] == event_type and "child" in event]


async def asking(client: Client, run_id: str) -> dict[str, Any]:
    """The open ticket of the run's child, once the run shows it."""
    async with client.events(f"/v1/runs/{run_id}") as stream:
        await stream.rest()
    waiting = (await client.run(run_id))["waiting"]
    assert waiting["needs_decision"] is True
    [ticket] = [each for each in waiting["tickets"] if each["run_id"] != run_id]
    return dict(ticket)


@pytest.mark.parametrize("place", list(Place), ids=lambda place: place.name.lower())
@pytest.mark.parametrize("when", ["opened", "decided"])
async def test_a_ticket_is_shown_once_although_the_server_that_shows_it_is_killed(
    when: str,
    place: Place,
    there: Server,
    other: Client,
    shared_database_url: str,
    agents: Path,
    tmp_path: Path,
) -> None:
    run_id = new_id()
    # A tool that may be repeated: the server may die while it executes the decided call.
    call = f"CALL put {json.dumps({'file': str(tmp_path / 'effects'), 'hold': False})}"
    prompt = f"CALL agent_run_guarded {json.dumps({'prompt': call})}"
    async with (
        forwarding(shared_database_url) as forwarder,
        serving(forwarder.url, agents=agents, **FAST_TAKEOVER) as here,
        here.client() as client,
    ):
        there.freeze()
        try:
            reached = forwarder.halt(SHOWN, place) if when == "opened" else None
            await client.start("chief", prompt, run_id=run_id)
            if reached is None:
                ticket = await asking(client, run_id)
                reached = forwarder.halt(SHOWN, place)
                decision = {"ticket_id": ticket["id"], "action": "approve"}
                await client.post(f"/v1/runs/{run_id}/decisions", {"decisions": [decision]})
            await asyncio.wait_for(reached.wait(), 30)
            here.kill()
            await here.gone()
        finally:
            there.thaw()
    if when == "opened":
        ticket = await asking(other, run_id)
        decision = {"ticket_id": ticket["id"], "action": "approve"}
        await other.post(f"/v1/runs/{run_id}/decisions", {"decisions": [decision]})
    run = await other.ended(run_id)
    assert run["outcome"] == "succeeded"
    log = await other.log(f"/v1/runs/{run_id}")
    check_run(log)
    assert [event["ticket"]["id"] for event in below(log, "ticket_opened")] == [ticket["id"]]
    assert [event["ticket_id"] for event in below(log, "ticket_decided")] == [ticket["id"]]
