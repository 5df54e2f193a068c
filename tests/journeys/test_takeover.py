"""A worker is lost, and another one continues its runs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import Effects
from tests.support.event_order import check_run
from tests.support.servers import Running, Server, serving, working
from tests.support.streams import Client, text_of, types_of

pytestmark = pytest.mark.anyio

MANY_WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 15


@pytest.fixture(scope="module")
async def server(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    """An API server without workers, which runs through all tests."""
    async with serving(shared_database_url, agents=agents, role="api") as running:
        yield running


class Workers:
    """The workers of one test, which all end with it."""

    def __init__(self, stack: AsyncExitStack, database_url: str, agents: Path) -> None:
        self._stack = stack
        self._database_url = database_url
        self._agents = agents
        self._started: list[Running] = []

    async def start(self) -> Running:
        worker = await self._stack.enter_async_context(
            working(self._database_url, agents=self._agents)
        )
        self._started.append(worker)
        return worker

    async def lose(self, pid: int) -> None:
        [worker] = [worker for worker in self._started if worker.pid == pid]
        worker.kill()
        await worker.gone()


@pytest.fixture
async def workers(shared_database_url: str, agents: Path) -> AsyncIterator[Workers]:
    async with AsyncExitStack() as stack:
        yield Workers(stack, shared_database_url, agents)


async def replace_the_executing_worker(workers: Workers, effects: Effects) -> None:
    await effects.happened()
    await workers.lose(effects.pids[0])
    await workers.start()


async def finished(client: Client, run_id: str) -> dict[str, Any]:
    """The finished run, after its events are checked."""
    run = await client.ended(run_id)
    check_run(await client.log(f"/v1/runs/{run_id}"))
    return run


async def test_an_open_message_is_voided_and_streamed_again(
    client: Client, workers: Workers
) -> None:
    first = await workers.start()
    async with client.start_stream("talker", MANY_WORDS) as stream:
        await stream.until("text_delta", 5)
        await workers.lose(first.pid)
        await workers.start()
        received = await stream.rest()
    run = await client.run(received[0]["run_id"])
    assert run["outcome"] == "succeeded"
    assert [event["seq"] for event in received] == list(range(1, len(received) + 1))
    resets = [event for event in received if event["event_type"] == "stream_reset"]
    assert [reset["reason"] for reset in resets] == ["takeover"]
    assert types_of(received).count("run_start") == types_of(received).count("step_start") == 1
    assert text_of(received) == run["final_output"]
    assert received == await client.log(f"/v1/runs/{run['id']}")
    check_run(received)


async def test_a_finished_call_is_not_repeated(
    client: Client, workers: Workers, effects: Effects, tmp_path: Path
) -> None:
    sent = Effects(tmp_path / "sent")
    await workers.start()
    prompt = f'CALL send {{"file": "{sent.file}"}} {effects.held("look")}'
    async with client.start_stream("quick", prompt) as stream:
        await replace_the_executing_worker(workers, effects)
        effects.release()
        received = await stream.rest()
    assert "stream_reset" not in types_of(received), "no message was open"
    assert len(sent.lines) == 1
    run = await finished(client, received[0]["run_id"])
    assert run["outcome"] == "succeeded"
    assert received == await client.log(f"/v1/runs/{run['id']}")


@pytest.mark.parametrize("tool", ["look", "put"])
async def test_a_repeatable_call_is_repeated_under_the_same_key(
    client: Client, workers: Workers, effects: Effects, tool: str
) -> None:
    await workers.start()
    started = await client.start("quick", effects.held(tool))
    await replace_the_executing_worker(workers, effects)
    effects.release()
    run = await finished(client, started["id"])
    assert run["outcome"] == "succeeded"
    assert len(effects.lines) == 2
    assert len(set(effects.keys)) == 1
    assert len(set(effects.pids)) == 2


@pytest.mark.parametrize(
    ("action", "more", "executions", "read_by_the_model"),
    [
        ("respond", {"result": "it was sent"}, 1, "it was sent"),
        ("approve", {}, 2, "send is done"),
        ("cancel", {"reason": "never mind"}, 1, "never mind"),
    ],
)
async def test_an_interrupted_unsafe_call_opens_a_ticket(
    client: Client,
    workers: Workers,
    effects: Effects,
    action: str,
    more: dict[str, Any],
    executions: int,
    read_by_the_model: str,
) -> None:
    await workers.start()
    started = await client.start("quick", effects.held("send"))
    await replace_the_executing_worker(workers, effects)
    waiting = await client.settled(started["id"])
    [ticket] = waiting["waiting"]["tickets"]
    assert ticket["kind"] == "outcome_unknown"
    assert len(effects.lines) == 1, "the call was repeated without a decision"
    effects.release()
    await client.decide(waiting, action, **more)
    run = await finished(client, started["id"])
    assert run["outcome"] == "succeeded"
    assert read_by_the_model in run["final_output"]
    assert len(effects.lines) == executions
    assert len(set(effects.keys)) == 1
