"""The journey of a signal whose server is killed, at each moment on the way to the call that waits for it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest

from app.clock import new_id
from tests.support.commands import holdfast
from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.forwarders import Forwarder, Place, forwarding
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

QUICKLY = {"heartbeat_timeout": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When the server that takes the signal is killed."""

    name: str
    stands: tuple[Literal["signal", "decision"], Place] | None = None
    """Which statement it never gets past; without one it is killed once it has answered."""
    repeats: bool = False
    """Whether the client has to send the signal again: the first one has not been stored."""

    def arm(self, way: Forwarder, signal: dict[str, Any]) -> asyncio.Event | None:
        if self.stands is None:
            return None
        subject, place = self.stands
        marker = signal["payload"] if subject == "signal" else f"signal:{signal['id']}"
        return way.halt(marker.encode(), place)


MOMENTS = [
    Moment(name="before the signal is committed", stands=("signal", Place.COMMIT), repeats=True),
    Moment(name="when it is committed and the client doesn't know", stands=("signal", Place.REPLY)),
    Moment(name="before its ticket is decided", stands=("decision", Place.STATEMENT)),
    Moment(name="when its ticket is decided", stands=("decision", Place.REPLY)),
    Moment(name="answered, before the run is resumed"),
]


@pytest.fixture(scope="module")
async def there(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """The server that outlives each test."""
    async with serving(shared_database_url, agents=agents, **QUICKLY) as running:
        yield running


@pytest.fixture
async def other(there: Server) -> AsyncIterator[Client]:
    async with there.client() as client:
        yield client


async def waiting(client: Client, effects: Effects, key: str) -> dict[str, Any]:
    """A run that waits for an event."""
    call = f'CALL receive {{"key": "{key}", "file": "{effects.file}"}}'
    run = await client.settled((await client.start("quick", call))["run_id"])
    assert run["waiting"]["reason"] == "external_event"
    return run


async def status_of(client: Client, signal: dict[str, Any]) -> int | None:
    """What a client hears; None when its server dies over the answer."""
    try:
        return (await client.http.post("/v1/signals", json=signal)).status_code
    except httpx2.TransportError:
        return None


async def kill_at(
    moment: Moment, way: Forwarder, here: Server, signal: dict[str, Any]
) -> int | None:
    """Send the signal to a server that is killed at the moment; what its client has heard."""
    reached = moment.arm(way, signal)
    async with here.client() as client, asyncio.TaskGroup() as group:
        answer = group.create_task(status_of(client, signal))
        if reached is None:
            await answer
        else:
            await asyncio.wait_for(reached.wait(), 20)
        here.kill()
        await here.gone()
    return answer.result()


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name)
async def test_a_signal_is_delivered_once_whenever_its_server_dies(
    moment: Moment,
    there: Server,
    other: Client,
    shared_database_url: str,
    agents: Path,
    tmp_path: Path,
) -> None:
    effects, key = Effects(tmp_path / "effects"), new_id()
    run = await waiting(other, effects, key)
    signal = {"id": new_id(), "name": "payment_settled", "key": key, "payload": f"paid-{new_id()}"}
    async with (
        forwarding(shared_database_url) as way,
        serving(way.url, agents=agents, role="api", **QUICKLY) as here,
    ):
        # The server that would go on sleeps until the one that took the signal is gone.
        there.freeze()
        try:
            heard = await kill_at(moment, way, here, signal)
        finally:
            there.thaw()
    assert heard == (200 if moment.stands is None else None)
    if moment.repeats:
        assert (await other.post("/v1/signals", signal))["status"] == "answered"
    run = await other.ended(run["run_id"])
    again = await other.post("/v1/signals", signal)
    assert again["status"] == "answered"
    assert [ticket["outcome"] for ticket in again["tickets"]] == ["answered"]
    assert run["outcome"] == "succeeded"
    assert f"receive is done with {signal['payload']}" in run["final_output"]
    assert len(effects.lines) == 1
    check_run(await other.log(f"/v1/runs/{run['run_id']}"))


async def test_an_event_is_sent_from_a_terminal(
    there: Server, other: Client, tmp_path: Path
) -> None:
    effects, key = Effects(tmp_path / "effects"), new_id()
    run = await waiting(other, effects, key)
    inbox = await other.get("/v1/tickets", run_id=run["run_id"])
    events = await other.get("/v1/tickets", run_id=run["run_id"], kind="event")
    command = ("signal", "payment_settled", key, '{"amount": 80}', "--id", f"s-{key}")
    sent = await holdfast(*command, url=there.base)
    again = await holdfast(*command, url=there.base)
    other_body = await holdfast(*command[:3], "{}", *command[4:], url=there.base)
    run = await other.ended(run["run_id"])
    assert inbox["items"] == []
    assert [each["event"] for each in events["items"]] == [{"name": "payment_settled", "key": key}]
    assert (sent.code, sent.out) == (0, f"s-{key}: answered\nrun {run['run_id']}: answered\n")
    assert (again.code, again.out) == (sent.code, sent.out)
    assert "signal_id_conflict" in other_body.err
    assert "receive is done with {'amount': 80}" in run["final_output"]


async def test_a_run_in_a_terminal_says_which_event_it_waits_for(
    there: Server, tmp_path: Path
) -> None:
    call = f'CALL receive {{"key": "inv-9", "file": "{tmp_path / "effects"}"}}'
    left = await holdfast("run", call, "--agent", "quick", url=there.base)
    assert "holdfast signal payment_settled inv-9 JSON" in left.err
    assert left.code == 6
