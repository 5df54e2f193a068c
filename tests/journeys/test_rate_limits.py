"""A run whose provider asks for a long pause: it waits without a worker, and resumes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.commands import holdfast
from tests.support.conditions import eventually
from tests.support.event_order import check_run
from tests.support.fake_answers import WORD
from tests.support.invariants import broken_invariants
from tests.support.servers import Server, serving
from tests.support.streams import Event, text_of, types_of

pytestmark = pytest.mark.anyio

ASKS_FOR_A_PAUSE = "CHAOS 429-wait once WORDS"
"""The provider answers the first request with `Retry-After: 3`, and the second one with words."""
WAITS = {"rate_limit_suspend_after": 1}


@pytest.fixture
async def servers(shared_database_url: str, agents: Path) -> AsyncIterator[list[Server]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(serving(shared_database_url, agents=agents, **WAITS))
            for _ in range(2)
        ]


def time_of(event: Event) -> datetime:
    return datetime.fromisoformat(event["ts"])


async def test_a_rate_limited_run_resumes_on_another_replica_after_a_crash(
    servers: list[Server], shared_database_url: str
) -> None:
    first, second = servers
    async with first.client() as first_client, second.client() as client:
        started = await first_client.start("lecturer", f"{ASKS_FOR_A_PAUSE} killed")
        path = f"/v1/runs/{started['id']}"
        async with client.events(path) as stream:
            suspended = await stream.until("run_finish")
            first.kill()
            await first.gone()
            run = await client.run(started["id"])
            assert (run["status"], run["waiting"]["reason"]) == ("waiting", "rate_limit")
            assert run["waiting"]["until"] == suspended["waiting"]["until"]
            assert "quota used up" in run["waiting"]["detail"]
            assert run["waiting"]["tickets"] == []
            [listed] = (await client.get("/v1/runs", status="waiting"))["items"]
            assert listed["waiting"]["until"] == run["waiting"]["until"]
            explained = await client.get(f"{path}/explain")
            [reason] = explained["reasons"]
            assert reason["code"] == "rate_limited"
            assert "fake-120-20ms" in reason["text"]
            assert explained["next_attempt_at"] == run["waiting"]["until"]
            received = await stream.rest()
        until = datetime.fromisoformat(run["waiting"]["until"])
        resumed = [event for event in received if event["event_type"] == "run_start"][1]
        assert time_of(resumed) >= until
        assert types_of(received).count("run_finish") == 2
        check_run(received)
        done = await client.run(started["id"])
        assert (done["outcome"], done["final_output"]) == ("succeeded", text_of(received))
        assert done["final_output"] == WORD * 120
    assert await broken_invariants(shared_database_url) == {}


async def test_a_cancel_during_a_rate_limit_wait_settles_at_once(servers: list[Server]) -> None:
    async with servers[0].client() as client:
        async with client.start_stream("lecturer", f"{ASKS_FOR_A_PAUSE} cancelled") as stream:
            await stream.until("run_finish")
            run_id = stream.received[0]["run_id"]
            cancelled = await client.post(f"/v1/runs/{run_id}/cancel", {"reason": "enough"})
            assert cancelled["outcome"] == "cancelled"
            received = await stream.rest()
    assert [e["termination"]["type"] for e in received if e["event_type"] == "run_finish"] == [
        "suspended",
        "cancelled",
    ]


async def test_a_long_poll_lasts_through_a_rate_limit_wait(servers: list[Server]) -> None:
    async with servers[0].client() as client:
        started = await client.start("lecturer", f"{ASKS_FOR_A_PAUSE} awaited")
        done = await client.run(started["id"], wait=30)
    assert done["outcome"] == "succeeded"


async def test_the_terminal_shows_when_a_rate_limited_run_resumes(servers: list[Server]) -> None:
    prompt = f"{ASKS_FOR_A_PAUSE} in a terminal"
    done = await holdfast("run", prompt, "--agent", "lecturer", url=servers[0].base)
    assert done.code == 0, done.err
    assert done.out.strip() == (WORD * 120).strip()
    assert "[the run resumes at " in done.err
    assert "quota used up" in done.err
    assert "holdfast decide" not in done.err


async def test_rate_limit_waits_are_measured(servers: list[Server]) -> None:
    async with servers[0].client() as client:

        async def waits() -> float:
            metrics = (await client.http.get("/metrics")).text
            name = "holdfast_rate_limit_wait_seconds_count{"
            return sum(
                float(line.rpartition(" ")[2])
                for line in metrics.splitlines()
                if line.startswith(name)
            )

        started = await client.start("lecturer", f"{ASKS_FOR_A_PAUSE} measured")

        async def is_measured() -> bool:
            return await waits() > 0

        await eventually(is_measured)
        await client.post(f"/v1/runs/{started['id']}/cancel", {})
