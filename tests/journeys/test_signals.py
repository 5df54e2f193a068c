"""A signal whose server is killed at each point before the waiting call continues."""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from app.clock import new_id
from tests.support.commands import holdfast
from tests.support.conditions import Effects
from tests.support.crash_points import send_and_kill, server_to_kill
from tests.support.event_order import check_run
from tests.support.forwarders import Forwarder, Place
from tests.support.servers import Server
from tests.support.streams import Client
from tests.support.terminals import started

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPoint:
    """When the server that takes the signal is killed."""

    name: str
    halts_at: tuple[Literal["signal", "decision"], Place] | None = None
    """The statement at which it is halted; without one it is killed after its answer."""
    repeats: bool = False
    """Whether the client must repeat the signal, because the first one was not stored."""

    def arm(self, forwarder: Forwarder, signal: dict[str, Any]) -> asyncio.Event | None:
        if self.halts_at is None:
            return None
        subject, place = self.halts_at
        marker = signal["payload"] if subject == "signal" else f"signal:{signal['signal_id']}"
        return forwarder.halt(marker.encode(), place)


CRASH_POINTS = [
    CrashPoint(
        name="before the signal is committed", halts_at=("signal", Place.COMMIT), repeats=True
    ),
    CrashPoint(name="committed, before the reply", halts_at=("signal", Place.REPLY)),
    CrashPoint(name="before its ticket is decided", halts_at=("decision", Place.STATEMENT)),
    CrashPoint(name="when its ticket is decided", halts_at=("decision", Place.REPLY)),
    CrashPoint(name="answered, before the run is resumed"),
]


async def waiting(client: Client, effects: Effects, key: str) -> dict[str, Any]:
    """A run that waits for an event."""
    call = f'CALL receive {{"key": "{key}", "file": "{effects.file}"}}'
    run = await client.settled((await client.start("quick", call))["id"])
    assert run["waiting"]["reason"] == "external_event"
    return run


@pytest.mark.parametrize("point", CRASH_POINTS, ids=lambda point: point.name)
async def test_a_signal_is_delivered_once_at_each_crash_point(
    point: CrashPoint,
    there: Server,
    other: Client,
    shared_database_url: str,
    agents: Path,
    tmp_path: Path,
) -> None:
    effects, key = Effects(tmp_path / "effects"), new_id()
    run = await waiting(other, effects, key)
    signal = {
        "signal_id": new_id(),
        "name": "payment_settled",
        "key": key,
        "payload": f"paid-{new_id()}",
    }
    async with server_to_kill(shared_database_url, agents, there, role="api") as (forwarder, here):
        halted = point.arm(forwarder, signal)
        received = await send_and_kill(
            here,
            "/v1/signals",
            signal,
            reached=None if halted is None else halted.wait,
            is_answered=halted is None,
        )
    assert received == (200 if point.halts_at is None else None)
    if point.repeats:
        assert (await other.post("/v1/signals", signal))["status"] == "answered"
    run = await other.ended(run["id"])
    again = await other.post("/v1/signals", signal)
    assert again["status"] == "answered"
    assert [ticket["outcome"] for ticket in again["tickets"]] == ["answered"]
    assert run["outcome"] == "succeeded"
    assert f"receive is done with {signal['payload']}" in run["final_output"]
    assert len(effects.lines) == 1
    check_run(await other.log(f"/v1/runs/{run['id']}"))


async def test_the_cli_sends_a_signal(there: Server, other: Client, tmp_path: Path) -> None:
    effects, key = Effects(tmp_path / "effects"), new_id()
    run = await waiting(other, effects, key)
    inbox = await other.get("/v1/tickets", run_id=run["id"])
    events = await other.get("/v1/tickets", run_id=run["id"], kind="event")
    command = ("signal", "payment_settled", key, '{"amount": 80}', "--id", f"s-{key}")
    sent = await holdfast(*command, url=there.base)
    again = await holdfast(*command, url=there.base)
    other_body = await holdfast(*command[:3], "{}", *command[4:], url=there.base)
    run = await other.ended(run["id"])
    assert inbox["items"] == []
    assert [each["event"] for each in events["items"]] == [{"name": "payment_settled", "key": key}]
    assert (sent.code, sent.out) == (0, f"s-{key}: answered\nrun {run['id']}: answered\n")
    assert (again.code, again.out) == (sent.code, sent.out)
    assert "signal_id_conflict" in other_body.err
    assert "receive is done with {'amount': 80}" in run["final_output"]


async def test_the_cli_shows_which_event_a_run_waits_for_and_continues_after_it(
    there: Server, tmp_path: Path
) -> None:
    key = new_id()
    call = f'CALL receive {{"key": "{key}", "file": "{tmp_path / "effects"}"}}'
    async with started("run", call, "--agent", "quick", HOLDFAST_URL=there.base) as run:
        await run.printed(re.compile(f"holdfast signal payment_settled {key} JSON"))
        await run.printed(re.compile("waits for an event"))
        sent = await holdfast("signal", "payment_settled", key, "80", url=there.base)
        assert sent.code == 0, sent.err
        assert await run.gone() == 0
    assert "receive is done with 80" in run.log
