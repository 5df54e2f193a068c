"""A decision whose server is killed at each point between the request and the next step."""

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

FAST_TAKEOVER = {"heartbeat_timeout": 1.0}
CLAIM = b"r.owner AS lost_owner,"
"""Text that only the claim statement has; each connection sends it once, when it prepares the statement."""

Subject = Literal["decision", "claim", "mark", "result"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """When the server that accepts the decision is killed, and what holds afterwards."""

    name: str
    halts_at: tuple[Subject, Place] | None = None
    """The statement at which it is halted. Without one it is killed while the tool executes, or, as a server
    without workers, after its answer."""
    tool: Literal["send", "put", "pay"] = "send"
    executes: bool = True
    locks: bool = False
    """The request has an idempotency key, so a transaction locks the run before it reads the tickets."""
    is_answered: bool = True
    """The client received a 200."""
    again: Literal["accepted", "duplicate"] = "duplicate"
    """The answer when the client repeats its decision at the other server."""
    executions: int = 1
    """How often the tool was executed in the end."""
    is_unknown: bool = False
    """A ticket asks a person for the outcome of the call."""

    @property
    def holds_the_tool(self) -> bool:
        return self.halts_at is None and self.executes

    def arm(self, forwarder: Forwarder, run_id: str, decision_id: str) -> asyncio.Event | None:
        if self.halts_at is None:
            return None
        subject, place = self.halts_at
        markers = {
            "decision": decision_id.encode(),
            "claim": CLAIM,
            "mark": f"{run_id}:0:".encode(),
            "result": f"{self.tool} is done".encode(),
        }
        return forwarder.halt(markers[subject], place)


CRASH_POINTS = [
    CrashPoint(
        name="before the decision is written",
        halts_at=("decision", Place.STATEMENT),
        is_answered=False,
        again="accepted",
    ),
    CrashPoint(
        name="committed, before the reply",
        halts_at=("decision", Place.REPLY),
        is_answered=False,
    ),
    CrashPoint(
        name="before the decision's transaction is committed",
        halts_at=("decision", Place.COMMIT),
        locks=True,
        is_answered=False,
        again="accepted",
    ),
    CrashPoint(
        # The claim is a part of the decision's transaction.
        name="before the transaction claims the run",
        halts_at=("claim", Place.STATEMENT),
        locks=True,
        is_answered=False,
        again="accepted",
    ),
    CrashPoint(name="answered, before a worker is notified", executes=False),
    CrashPoint(name="claimed, before the call is marked", halts_at=("mark", Place.STATEMENT)),
    CrashPoint(
        name="marked, before the tool is called",
        halts_at=("mark", Place.REPLY),
        executions=0,
        is_unknown=True,
    ),
    CrashPoint(name="while the tool executes", is_unknown=True),
    CrashPoint(
        name="before the result is saved",
        halts_at=("result", Place.STATEMENT),
        is_unknown=True,
    ),
    CrashPoint(name="when the result is saved", halts_at=("result", Place.REPLY)),
    CrashPoint(name="while a repeatable tool executes", tool="put", executions=2),
    CrashPoint(
        name="before the result of a repeatable tool is saved",
        tool="put",
        halts_at=("result", Place.STATEMENT),
        executions=2,
    ),
    CrashPoint(
        name="marked, before a tool with a reconciler is called",
        tool="pay",
        halts_at=("mark", Place.REPLY),
    ),
    CrashPoint(name="while a tool with a reconciler executes", tool="pay"),
]


@pytest.fixture(scope="module")
async def there(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """The server that runs through all tests."""
    async with serving(shared_database_url, agents=agents, **FAST_TAKEOVER) as running:
        yield running


@pytest.fixture
async def other(there: Server) -> AsyncIterator[Client]:
    async with there.client() as client:
        yield client


async def status_of(
    client: Client, path: str, body: dict[str, Any], headers: dict[str, str]
) -> int | None:
    """The status of the response; None when the server dies before it answers."""
    try:
        return (await client.http.post(path, json=body, headers=headers)).status_code
    except httpx2.TransportError:
        return None


async def kill_at(
    point: CrashPoint,
    forwarder: Forwarder,
    here: Server,
    run: dict[str, Any],
    effects: Effects,
    body: Any,
) -> int | None:
    """Send the decision to a server that is killed at the crash point; returns the received status."""
    path = f"/v1/runs/{run['id']}/decisions"
    reached = point.arm(forwarder, run["id"], body["decisions"][0]["decision_id"])
    async with here.client() as client, asyncio.TaskGroup() as group:
        headers = {"idempotency-key": new_id()} if point.locks else {}
        answer = group.create_task(status_of(client, path, body, headers))
        if reached is not None:
            await asyncio.wait_for(reached.wait(), 20)
        if point.holds_the_tool:
            await effects.happened()
        if point.is_answered:
            await answer
        here.kill()
        await here.gone()
    return answer.result()


@pytest.mark.parametrize("point", CRASH_POINTS, ids=lambda point: point.name)
async def test_a_decision_takes_effect_once_at_each_crash_point(
    point: CrashPoint,
    there: Server,
    other: Client,
    shared_database_url: str,
    agents: Path,
    tmp_path: Path,
) -> None:
    effects = Effects(tmp_path / "effects")
    hold = str(point.holds_the_tool).lower()
    call = f'CALL {point.tool} {{"file": "{effects.file}", "hold": {hold}}}'
    run = await other.settled((await other.start("guarded", call))["id"])
    [ticket] = run["waiting"]["tickets"]
    decision = {"ticket_id": ticket["id"], "action": "approve", "decision_id": new_id()}
    body = {"decisions": [decision]}
    role = "all" if point.executes else "api"
    async with (
        forwarding(shared_database_url) as forwarder,
        serving(forwarder.url, agents=agents, role=role, **FAST_TAKEOVER) as here,
    ):
        if not point.executes:
            # The other server is frozen until the one that answers is dead.
            there.freeze()
        try:
            received = await kill_at(point, forwarder, here, run, effects, body)
        finally:
            there.thaw()
    assert received == (200 if point.is_answered else None)
    again = await other.post(f"/v1/runs/{run['id']}/decisions", body)
    assert again["results"][0]["status"] == point.again
    assert again["results"][0]["decision_id"] == decision["decision_id"]

    effects.release()
    run = (
        await other.ended(run["id"]) if not point.is_unknown else await answered_outcome(other, run)
    )
    assert run["outcome"] == "succeeded"
    assert len(effects.lines) == point.executions
    assert len(set(effects.keys)) <= 1, "a call has one key, however often it is made"
    check_run(await other.log(f"/v1/runs/{run['id']}"))


async def answered_outcome(client: Client, run: dict[str, Any]) -> dict[str, Any]:
    """The finished run, after a person has answered the ticket about the outcome of its call."""
    async with asyncio.timeout(60):
        while True:
            run = await client.settled(run["id"])
            if run["status"] == "waiting" and run["waiting"]["tickets"]:
                [ticket] = run["waiting"]["tickets"]
                if ticket["kind"] == "outcome_unknown":
                    break
    await client.decide(run, "respond", result="it was sent")
    run = await client.ended(run["id"])
    assert "it was sent" in run["final_output"]
    return run
