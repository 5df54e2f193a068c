"""The journey of a decision whose server is killed, at each moment on the way from the answer to the next step."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest

from app.clock import new_id
from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.forwarders import Forwarder, Place, forwarding
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

QUICKLY = {"heartbeat_timeout": 1.0}
CLAIM = b"r.owner AS lost_owner,"
"""What only a claim says; its text is sent once, by who hasn't claimed before."""

Subject = Literal["decision", "claim", "mark", "result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When the server that takes the decision is killed, and what is true afterwards."""

    name: str
    stands: tuple[Subject, Place] | None = None
    """Which statement it never gets past; without one it is killed once the tool is at work, or, when it
    executes nothing, once it has answered."""
    tool: Literal["send", "put", "pay"] = "send"
    executes: bool = True
    is_answered: bool = True
    """The client has had its 200."""
    again: Literal["accepted", "duplicate"] = "duplicate"
    """What the client hears who repeats its decision at the other server."""
    executions: int = 1
    """How often the tool has had the call in the end."""
    is_unknown: bool = False
    """A person is asked what became of the call."""

    @property
    def holds_the_tool(self) -> bool:
        return self.stands is None and self.executes

    def arm(self, way: Forwarder, run_id: str, decision_id: str) -> asyncio.Event | None:
        if self.stands is None:
            return None
        subject, place = self.stands
        markers = {
            "decision": decision_id.encode(),
            "claim": CLAIM,
            "mark": f"{run_id}:0:".encode(),
            "result": f"{self.tool} is done".encode(),
        }
        return way.halt(markers[subject], place)


MOMENTS = [
    Moment(
        name="before the decision is committed",
        stands=("decision", Place.COMMIT),
        is_answered=False,
        again="accepted",
    ),
    Moment(
        name="when it is committed and nobody knows",
        stands=("decision", Place.REPLY),
        is_answered=False,
    ),
    Moment(name="before the run is claimed", stands=("claim", Place.STATEMENT), is_answered=False),
    Moment(name="answered, before anybody is woken", executes=False),
    Moment(name="claimed, before the call is marked", stands=("mark", Place.STATEMENT)),
    Moment(
        name="marked, before the tool has the call",
        stands=("mark", Place.REPLY),
        executions=0,
        is_unknown=True,
    ),
    Moment(name="while the tool is at work", is_unknown=True),
    Moment(
        name="before the result is saved",
        stands=("result", Place.STATEMENT),
        is_unknown=True,
    ),
    Moment(name="when the result is saved", stands=("result", Place.REPLY)),
    Moment(name="while a tool is at work that may be repeated", tool="put", executions=2),
    Moment(
        name="before a result is saved that may be had again",
        tool="put",
        stands=("result", Place.STATEMENT),
        executions=2,
    ),
    Moment(
        name="marked, before a tool has the call that can say so",
        tool="pay",
        stands=("mark", Place.REPLY),
    ),
    Moment(name="while a tool is at work that can say what it did", tool="pay"),
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


async def status_of(client: Client, path: str, body: dict[str, Any]) -> int | None:
    """What a client hears; None when its server dies over the answer."""
    try:
        return (await client.http.post(path, json=body)).status_code
    except httpx2.TransportError:
        return None


async def kill_at(
    moment: Moment, way: Forwarder, here: Server, run: dict[str, Any], effects: Effects, body: Any
) -> int | None:
    """Give the decision to a server that is killed at the moment; what its client has heard."""
    path = f"/v1/runs/{run['run_id']}/decisions"
    reached = moment.arm(way, run["run_id"], body["decisions"][0]["decision_id"])
    async with here.client() as client, asyncio.TaskGroup() as group:
        answer = group.create_task(status_of(client, path, body))
        if reached is not None:
            await asyncio.wait_for(reached.wait(), 20)
        if moment.holds_the_tool:
            await effects.happened()
        if moment.is_answered:
            await answer
        here.kill()
        await here.gone()
    return answer.result()


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name)
async def test_a_decision_counts_once_whenever_its_server_dies(
    moment: Moment,
    there: Server,
    other: Client,
    shared_database_url: str,
    agents: Path,
    tmp_path: Path,
) -> None:
    effects = Effects(tmp_path / "effects")
    hold = str(moment.holds_the_tool).lower()
    call = f'CALL {moment.tool} {{"file": "{effects.file}", "hold": {hold}}}'
    run = await other.settled((await other.start("guarded", call))["run_id"])
    [ticket] = run["waiting"]["tickets"]
    decision = {"ticket_id": ticket["id"], "action": "approve", "decision_id": new_id()}
    body = {"decisions": [decision]}
    role = "all" if moment.executes else "api"
    async with (
        forwarding(shared_database_url) as way,
        serving(way.url, agents=agents, role=role, **QUICKLY) as here,
    ):
        if not moment.executes:
            # Whoever would be woken sleeps until the one who answers is gone.
            there.freeze()
        try:
            heard = await kill_at(moment, way, here, run, effects, body)
        finally:
            there.thaw()
    assert heard == (200 if moment.is_answered else None)
    again = await other.post(f"/v1/runs/{run['run_id']}/decisions", body)
    assert again["results"][0]["status"] == moment.again
    assert again["results"][0]["decision_id"] == decision["decision_id"]

    effects.release()
    run = await other.ended(run["run_id"]) if not moment.is_unknown else await asked(other, run)
    assert run["outcome"] == "succeeded"
    assert len(effects.lines) == moment.executions
    assert len(set(effects.keys)) <= 1, "a call has one key, however often it is made"
    check_run(await other.log(f"/v1/runs/{run['run_id']}"))


async def asked(client: Client, run: dict[str, Any]) -> dict[str, Any]:
    """The run at its end, once a person has said what became of its call."""
    async with asyncio.timeout(30):
        while True:
            run = await client.settled(run["run_id"])
            if run["status"] == "waiting" and run["waiting"]["tickets"]:
                [ticket] = run["waiting"]["tickets"]
                if ticket["kind"] == "outcome_unknown":
                    break
    await client.decide(run, "respond", result="it was sent")
    run = await client.ended(run["run_id"])
    assert "it was sent" in run["final_output"]
    return run
