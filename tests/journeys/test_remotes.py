"""Runs of remote agents, and trees of runs, while processes die."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.conditions import Effects, eventually
from tests.support.databases import Databases
from tests.support.event_order import check_run
from tests.support.remotes import A2AServer, a2a_server
from tests.support.servers import Server, serving
from tests.support.streams import Client, text_of

pytestmark = pytest.mark.anyio

Record = dict[str, Any]


class Deployment:
    """A server that can be killed and started again on the same port."""

    def __init__(self, stack: AsyncExitStack, database_url: str, agents: Path) -> None:
        self._stack = stack
        self._settings = {"agents": agents}
        self.database_url = database_url
        self.server: Server

    async def start(self, **more: object) -> Server:
        self.server = await self._stack.enter_async_context(
            serving(self.database_url, **self._settings, **more)
        )
        return self.server

    async def start_again(self) -> None:
        await self.start(port=int(self.server.base.rpartition(":")[2]))

    @property
    def is_alive(self) -> bool:
        return self.server.process.returncode is None

    async def kill(self) -> None:
        self.server.kill()
        await self.server.gone()


@pytest.fixture(scope="module")
async def far() -> AsyncIterator[A2AServer]:
    async with a2a_server() as opened:
        yield opened


@pytest.fixture(scope="module")
async def remote(postgres: Databases, agents: Path) -> AsyncIterator[Deployment]:
    """Another Holdfast, on its own database."""
    async with AsyncExitStack() as stack, postgres.fresh() as url:
        opened = Deployment(stack, url, agents)
        await opened.start()
        yield opened
        await stack.aclose()


@pytest.fixture(scope="module")
async def both(
    postgres: Databases, agents: Path, far: A2AServer, remote: Deployment
) -> AsyncIterator[tuple[Deployment, Deployment]]:
    """Two servers on one database."""
    text = (agents.parent / "remotes.toml").read_text()
    places = {'"A2A"': far.base, '"HOLDFAST"': remote.server.base}
    for name, place in places.items():
        text = text.replace(name, f'"{place}"')
    file = agents.parent / "placed.toml"
    file.write_text(text)
    async with AsyncExitStack() as stack, postgres.fresh() as url:
        opened = Deployment(stack, url, file), Deployment(stack, url, file)
        await asyncio.gather(*(each.start() for each in opened))
        yield opened
        await stack.aclose()


@pytest.fixture
async def here(
    both: tuple[Deployment, Deployment], far: A2AServer
) -> tuple[Deployment, Deployment]:
    """The two servers, both alive."""
    await far.reset()
    for each in both:
        if not each.is_alive:
            await each.start_again()
    return both


async def ended(client: Client, run_id: str) -> Record:
    """The finished run, after its events are checked."""

    async def done() -> Record | None:
        run = await client.run(run_id, wait=5)
        return run if run["status"] == "done" else None

    run = await eventually(done)
    check_run(await client.log(f"/v1/runs/{run_id}"))
    return run


async def runs_of(server: Server) -> list[Record]:
    async with server.client() as client:
        items: list[Record] = (await client.get("/v1/runs"))["items"]
        return items


# --- remote agents --------------------------------------------------------------------------------


async def test_a_remote_turn_survives_the_server_that_follows_it(
    here: tuple[Deployment, Deployment], far: A2AServer
) -> None:
    first, second = here
    async with first.server.client() as client:
        run = await client.start("far", "hang")
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta")
    await first.kill()
    await far.release()
    async with second.server.client() as client:
        done = await ended(client, run["id"])
    assert (done["outcome"], done["final_output"]) == ("succeeded", "still here")
    assert done["attempt"] == 2
    assert len((await far.seen())["turns"]) == 1


async def test_a_message_that_answers_a_remote_is_sent_once(
    here: tuple[Deployment, Deployment],
) -> None:
    async with here[0].server.client() as client:
        run = await client.settled((await client.start("far", "ask which one?"))["id"])
        message = {"role": "user", "content": "the red one"}
        body = {"messages": [message], "mode": "resume_open_run"}
        await client.post(f"/v1/runs/{run['id']}/inputs", body, status=202)
        done = await ended(client, run["id"])
        log = (await client.get(f"/v1/threads/{run['thread_id']}/messages"))["items"]
    assert done["final_output"] == "you answered: the red one"
    assert [each["role"] for each in log] == ["user", "assistant", "user", "assistant"]


async def test_text_a_remote_streamed_before_a_cancel_is_in_the_log(
    here: tuple[Deployment, Deployment],
) -> None:
    async with here[0].server.client() as client:
        run = await client.start("far", "hang")
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta")
            await client.post(f"/v1/runs/{run['id']}/cancel", status=202)
            await stream.rest()
        done = await ended(client, run["id"])
        log = (await client.get(f"/v1/threads/{run['thread_id']}/messages"))["items"]
    assert (done["outcome"], done["final_output"]) == ("cancelled", "still ")
    assert [(each["role"], each["cut_short"]) for each in log] == [
        ("user", None),
        ("assistant", "cancelled"),
    ]


async def test_text_a_remote_streamed_is_voided_by_a_cancel_after_a_takeover(
    here: tuple[Deployment, Deployment],
) -> None:
    first, second = here
    async with first.server.client() as client:
        run = await client.start("far", "hang")
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta")
    await first.kill()
    async with second.server.client() as client:
        await client.post(f"/v1/runs/{run['id']}/cancel", status=202)
        done = await ended(client, run["id"])
        emitted = await client.log(f"/v1/runs/{run['id']}")
        log = (await client.get(f"/v1/threads/{run['thread_id']}/messages"))["items"]
    kinds = [event["event_type"] for event in emitted]
    assert done["outcome"] == "cancelled"
    assert kinds.index("stream_reset") > kinds.index("text_delta")
    assert [each["role"] for each in log] == ["user"]


async def test_a_suspended_remote_is_not_asked_again(
    here: tuple[Deployment, Deployment], far: A2AServer, remote: Deployment
) -> None:
    before = len(await runs_of(remote.server))
    async with here[0].server.client() as client:
        run = await client.start("lecturer", "lecture on patience")
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta")
        remote.server.process.send_signal(signal.SIGSTOP)
        await _heartbeats_are_overdue(remote.database_url)
        assert (await client.run(run["id"]))["status"] == "running"
        remote.server.process.send_signal(signal.SIGCONT)
        done = await ended(client, run["id"])
    there = await runs_of(remote.server)
    assert len(there) == before + 1
    assert done["final_output"] == there[0]["final_output"]


async def test_a_cancel_does_not_wait_for_a_suspended_remote_and_reaches_it_later(
    here: tuple[Deployment, Deployment], remote: Deployment
) -> None:
    async with here[0].server.client() as client:
        run = await client.start("endless", "go on and on")
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta")
        remote.server.process.send_signal(signal.SIGSTOP)
        try:
            await client.post(f"/v1/runs/{run['id']}/cancel", status=202)
            done = await ended(client, run["id"])
        finally:
            remote.server.process.send_signal(signal.SIGCONT)
    assert done["outcome"] == "cancelled"

    async def stopped() -> bool:
        return bool((await runs_of(remote.server))[0]["outcome"] == "cancelled")

    await eventually(stopped)


async def _heartbeats_are_overdue(database_url: str) -> None:
    """Waits until the heartbeats of all workers there are overdue."""
    connection = await asyncpg.connect(database_url)

    async def all_are_overdue() -> bool:
        query = "SELECT bool_and(heartbeat_at < now() - interval '2 seconds') FROM workers"
        return bool(await connection.fetchval(query))

    try:
        await eventually(all_are_overdue)
    finally:
        await connection.close()


async def test_a_restarted_remote_loses_no_answer(
    here: tuple[Deployment, Deployment], remote: Deployment
) -> None:
    before = len(await runs_of(remote.server))
    async with here[0].server.client() as client:
        run = await client.start("lecturer", "lecture on loss")
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta", 2)
        await remote.kill()
        await remote.start_again()
        done = await ended(client, run["id"])
        log = await client.log(f"/v1/runs/{run['id']}")
    there = await runs_of(remote.server)
    assert len(there) == before + 1
    assert there[0]["attempt"] == 2
    assert done["final_output"] == there[0]["final_output"]
    assert text_of(log) == done["final_output"]


async def test_a_remote_that_times_out_is_cancelled(
    here: tuple[Deployment, Deployment], remote: Deployment
) -> None:
    async with here[0].server.client() as client:
        run = await client.start("hurried", "go on and on")
        done = await ended(client, run["id"])
    assert done["termination"]["code"] == "timeout"

    async def stopped() -> bool:
        return bool((await runs_of(remote.server))[0]["outcome"] == "cancelled")

    await eventually(stopped)


async def test_a_run_waits_for_the_children_of_its_remote(
    here: tuple[Deployment, Deployment], remote: Deployment
) -> None:
    async with here[0].server.client() as client:
        work = f"CALL agent_run_quick {json.dumps({'prompt': 'how are you?'})}"
        run = await client.start("chief", work)
        done = await ended(client, run["id"])
    [chief] = [each for each in await runs_of(remote.server) if each["agent_id"] == "chief"]
    assert "how are you?" in done["final_output"]
    assert done["final_output"] == chief["final_output"]


async def test_a_question_of_a_remotes_child_survives_crashes_on_both_sides(
    here: tuple[Deployment, Deployment], remote: Deployment
) -> None:
    first, second = here
    work = f"CALL risky {json.dumps({'what': 'the deed'})}"
    async with first.server.client() as client:
        give = f"CALL agent_run_quick {json.dumps({'prompt': work})}"
        run = await client.start("chief", give)
    await first.kill()
    async with second.server.client() as client:

        async def asked() -> Record | None:
            waiting = (await client.run(run["id"]))["waiting"]
            return None if waiting is None else waiting["tickets"][0]

        ticket = await eventually(asked)
        await remote.kill()
        decision = {"ticket_id": ticket["id"], "action": "approve"}
        await client.post(f"/v1/runs/{run['id']}/decisions", {"decisions": [decision]})
        await remote.start_again()
        done = await ended(client, run["id"])
    assert (ticket["tool_name"], ticket["arguments"]) == ("risky", {"what": "the deed"})
    assert "did the deed" in done["final_output"]


# --- run trees over two servers -------------------------------------------------------------------


def whole_tree(effects: Effects) -> str:
    """Two leads at once, each with two diggers, whose calls are held until they are released."""
    dig = f"CALL look {json.dumps({'file': str(effects.file), 'hold': True})}"
    lead = f"CALLS 2 agent_run_digger {json.dumps({'prompt': dig})}"
    return f"CALLS 2 agent_run_lead {json.dumps({'prompt': lead})}"


async def tree_of(client: Client, root: str) -> list[Record]:
    items: list[Record] = (await client.get("/v1/runs", root_run_id=root))["items"]
    return items


async def test_a_run_tree_survives_a_crash_without_lost_or_duplicate_children(
    here: tuple[Deployment, Deployment], effects: Effects
) -> None:
    first, second = here
    async with second.server.client() as client:
        async with first.server.client() as first_client:
            root = (await first_client.start("boss", whole_tree(effects)))["id"]
        await effects.happened(4)
        await first.kill()
        effects.release()
        done = await ended(client, root)
        tree = await tree_of(client, root)
        for run in tree:
            check_run(await client.log(f"/v1/runs/{run['id']}"))
    assert done["outcome"] == "succeeded"
    assert sorted(run["agent_id"] for run in tree) == ["boss", *["digger"] * 4, *["lead"] * 2]
    assert {run["outcome"] for run in tree} == {"succeeded"}
    parents = [run["parent_run_id"] for run in tree if run["agent_id"] == "digger"]
    assert sorted(parents.count(parent) for parent in set(parents)) == [2, 2]


async def test_a_cancel_settles_the_run_tree_after_a_crash(
    here: tuple[Deployment, Deployment], effects: Effects
) -> None:
    first, second = here
    async with second.server.client() as client:
        root = (await client.start("boss", whole_tree(effects)))["id"]
        await effects.happened(4)
        await first.kill()
        await client.post(f"/v1/runs/{root}/cancel")

        async def settled() -> list[Record] | None:
            tree = await tree_of(client, root)
            return tree if all(run["status"] == "done" for run in tree) else None

        tree = await eventually(settled)
        explained = await client.get(f"/v1/runs/{root}/explain")
    assert len(tree) == 7
    assert {run["outcome"] for run in tree} == {"cancelled"}
    assert len(explained["below"]) == 6
