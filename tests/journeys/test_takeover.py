"""The journey of a lost worker: its machine is gone, and another one goes on with its runs."""

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
    """Serves and executes nothing, so it outlives every worker."""
    async with serving(shared_database_url, agents=agents, role="api") as running:
        yield running


class Workers:
    """Those that execute; each test starts its own, and is left by none."""

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


async def lose_the_one_that_executes(workers: Workers, effects: Effects) -> None:
    await effects.happened()
    await workers.lose(effects.pids[0])
    await workers.start()


async def finished(client: Client, run_id: str) -> dict[str, Any]:
    """The run at its end; its events kept every rule."""
    run = await client.ended(run_id)
    check_run(await client.log(f"/v1/runs/{run_id}"))
    return run


async def test_an_open_message_is_voided_and_said_again(client: Client, workers: Workers) -> None:
    first = await workers.start()
    async with client.start_stream("talker", MANY_WORDS) as stream:
        await stream.until("text_delta", 5)
        await workers.lose(first.pid)
        await workers.start()
        heard = await stream.rest()
    run = await client.run(heard[0]["run_id"])
    assert run["outcome"] == "succeeded"
    assert [event["seq"] for event in heard] == list(range(1, len(heard) + 1))
    resets = [event for event in heard if event["event_type"] == "stream_reset"]
    assert [reset["reason"] for reset in resets] == ["takeover"]
    assert types_of(heard).count("run_start") == types_of(heard).count("step_start") == 1
    assert text_of(heard) == run["final_output"]
    assert heard == await client.log(f"/v1/runs/{run['run_id']}")
    check_run(heard)


async def test_what_a_finished_tool_did_is_not_done_again(
    client: Client, workers: Workers, effects: Effects, tmp_path: Path
) -> None:
    sent = Effects(tmp_path / "sent")
    await workers.start()
    prompt = f'CALL send {{"file": "{sent.file}"}} {effects.held("look")}'
    async with client.start_stream("quick", prompt) as stream:
        await lose_the_one_that_executes(workers, effects)
        effects.release()
        heard = await stream.rest()
    assert "stream_reset" not in types_of(heard), "no message was open"
    assert len(sent.lines) == 1
    run = await finished(client, heard[0]["run_id"])
    assert run["outcome"] == "succeeded"
    assert heard == await client.log(f"/v1/runs/{run['run_id']}")


@pytest.mark.parametrize("tool", ["look", "put"])
async def test_a_call_that_may_be_done_again_is_done_under_the_same_key(
    client: Client, workers: Workers, effects: Effects, tool: str
) -> None:
    await workers.start()
    started = await client.start("quick", effects.held(tool))
    await lose_the_one_that_executes(workers, effects)
    effects.release()
    run = await finished(client, started["run_id"])
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
async def test_an_unsafe_call_is_a_question_to_a_person(
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
    await lose_the_one_that_executes(workers, effects)
    waiting = await client.settled(started["run_id"])
    [ticket] = waiting["waiting"]["tickets"]
    assert ticket["kind"] == "outcome_unknown"
    assert len(effects.lines) == 1, "nobody has allowed it to happen again"
    effects.release()
    await client.decide(waiting, action, **more)
    run = await finished(client, started["run_id"])
    assert run["outcome"] == "succeeded"
    assert read_by_the_model in run["final_output"]
    assert len(effects.lines) == executions
    assert len(set(effects.keys)) == 1
