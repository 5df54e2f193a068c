"""Threads as a whole: cancelled with all that queues, copied, deleted with their children, measured."""

import asyncio
from typing import Any

import pytest

from app.clock import new_id
from app.commands.threads.cancel_thread import ThreadCancelAnswer, cancel_thread
from app.commands.threads.fork import ForkRequest, fork
from app.domain.ids import ThreadId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled
from app.domain.threads.threads import Thread
from app.llm.scripted.model import Gate, in_order, turn
from app.queries.wait import wait_until_idle
from tests.support.event_order import check_run
from tests.support.house import ANN, Replica, Run, an_agent, replica, texts_of, types_of
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.problems import the_problem
from tests.support.routes import UNKNOWN
from tests.support.streams import Client
from tests.support.thread_sizes import thread_size

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'


async def wished_away(house: Replica, run: Run) -> ThreadCancelAnswer:
    return await cancel_thread(house.ctx, ANN, run.thread_id, reason="enough")


async def assert_all_cancelled(*runs: Run) -> None:
    for run in runs:
        record = run.record
        assert await wait_until_idle(
            run.replica.ctx, record.tenant, run.thread_id, run.id, 15, only_done=True
        )
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("enough")


# --- cancelled ------------------------------------------------------------------------------------


async def test_a_thread_is_cancelled_with_all_that_queues(database_url: str) -> None:
    gate = Gate()
    async with replica(
        database_url, an_agent(), in_order(turn(gate, "one"), turn("next"))
    ) as house:
        first = await house.start()
        await asyncio.wait_for(gate.reached.wait(), 15)
        behind = [await house.start(thread_id=first.thread_id) for _ in range(3)]
        answer = await wished_away(house, first)
        assert [run.id for run in answer.runs] == [first.id, *(run.id for run in behind)]
        assert [run.is_done for run in answer.runs] == [False, True, True, True]
        assert not answer.is_settled
        await assert_all_cancelled(first, *behind)
        for run in behind:
            said = await run.finished()
            assert types_of(said)[1:] == ["cancel_requested", "state_snapshot", "run_finish"]
        again = await wished_away(house, first)
        assert (again.runs, again.is_settled) == ((), True)
        following = await house.start("and now?", thread_id=first.thread_id)
        await following.finished()
        assert [text for _, text in texts_of(await first.log())] == ["go", "and now?", "next"]
    assert await broken_invariants(database_url) == {}


async def test_a_thread_that_waits_is_settled_at_once(database_url: str) -> None:
    probe = Probe(asks=1)
    script = in_order(turn(probe.call("c1")), turn("next"))
    async with replica(database_url, an_agent(probe.tool), script) as house:
        first = await house.start()
        await first.finished()
        second = await house.start(thread_id=first.thread_id)
        answer = await wished_away(house, first)
        assert answer.is_settled
        await assert_all_cancelled(first, second)
    assert await broken_invariants(database_url) == {}


async def test_a_thread_whose_owner_is_lost_settles_too(database_url: str) -> None:
    gate = Gate()
    async with replica(database_url, an_agent(), in_order(turn(gate, "one"))) as lost:
        first = await lost.start()
        await asyncio.wait_for(gate.reached.wait(), 15)
        behind = await lost.start(thread_id=first.thread_id)
        await lost.kill()
        async with replica(database_url, an_agent(), in_order(turn("two"))) as house:
            await wished_away(house, first)
            await assert_all_cancelled(house.same(first), house.same(behind))
            check_run(await house.same(first).until("run_finish"))


async def test_a_thread_is_cancelled_over_http(client: Client) -> None:
    first = await client.start("talker", "word " * 100)
    thread_id = first["thread_id"]
    second = await client.start("quick", "hello", thread_id=thread_id)
    path = f"/v1/threads/{thread_id}/cancel"
    key = {"Idempotency-Key": "all of it"}
    told = await client.http.post(path, json={"reason": "no"}, headers=key)
    assert told.status_code == 202
    assert [run["run_id"] for run in told.json()["runs"]] == [first["run_id"], second["run_id"]]
    again = await client.http.post(path, json={"reason": "no"}, headers=key)
    assert (again.status_code, again.json()) == (202, told.json())
    settled = await client.http.post(path, json={"reason": "no"}, headers=key, params={"wait": 20})
    assert settled.status_code == 200
    assert [run["outcome"] for run in settled.json()["runs"]] == ["cancelled", "cancelled"]
    idle = await client.post(path)
    assert idle == {"thread_id": thread_id, "is_settled": True, "runs": []}
    the_problem(await client.http.post(f"/v1/threads/{UNKNOWN}/cancel"), 404, "thread_not_found")


# --- copied ---------------------------------------------------------------------------------------


async def forked(house: Replica, origin: Run, **where: Any) -> Thread:
    request = {"from_seq": None, "run_id": None, "title": None, "resource_id": None}
    wish = ForkRequest(thread_id=ThreadId(new_id()), metadata=None, **{**request, **where})
    return await fork(house.ctx, ANN, origin.thread_id, wish)


async def test_a_fork_has_the_log_up_to_there_and_goes_its_own_way(database_url: str) -> None:
    script = in_order(turn("one"), turn("two"), turn("other"))
    async with replica(database_url, an_agent(), script) as house:
        first = await house.start("first")
        await first.finished()
        second = await house.start("second", thread_id=first.thread_id)
        await second.finished()
        log = await first.log()
        by_seq = await forked(house, first, from_seq=2)
        by_run = await forked(house, first, run_id=first.id)
        whole = await forked(house, first)
        assert by_seq.next_message_seq == by_run.next_message_seq == 3
        assert whole.next_message_seq == 5
        assert {one.parent_thread_id for one in (by_seq, by_run, whole)} == {first.thread_id}
        other = await house.start("instead", thread_id=by_seq.id)
        await other.finished()
        assert await first.log() == log
        copied = (await other.log())[:2]
        assert [entry.message for entry in copied] == [entry.message for entry in log[:2]]
        assert [entry.seq for entry in await other.log()] == [1, 2, 3, 4]
        said = await other.finished()
        assert said[0]["seq"] == 1
    assert [message.text for message in script.requests[2].messages] == ["first", "one", "instead"]
    assert await broken_invariants(database_url) == {}


async def test_a_fork_in_the_middle_of_a_step_is_answered_for(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("done"), turn("other"))
    async with replica(database_url, an_agent(probe.tool), script) as house:
        first = await house.start()
        await first.finished()
        cut = await forked(house, first, from_seq=2)
        other = await house.start("instead", thread_id=cut.id)
        assert (await other.finished())[-1]["termination"] == {"type": "natural_end"}
    roles = [message.role.value for message in script.requests[2].messages]
    assert roles == ["user", "assistant", "tool", "user"]


async def test_a_fork_over_http(client: Client) -> None:
    thread = await client.post("/v1/threads", {"title": "mine", "metadata": {"a": "b"}}, 201)
    path = f"/v1/threads/{thread['thread_id']}/fork"
    run = await client.start("quick", "hello", thread_id=thread["thread_id"])
    await client.settled(run["run_id"])
    key = {"Idempotency-Key": "one copy"}
    first = await client.http.post(path, json={"run_id": run["run_id"]}, headers=key)
    assert first.status_code == 201
    made = first.json()
    assert first.headers["location"] == f"/v1/threads/{made['thread_id']}"
    assert made["parent_thread_id"] == thread["thread_id"]
    assert (made["title"], made["metadata"], made["message_count"]) == ("mine", {"a": "b"}, 2)
    again = await client.http.post(path, json={"run_id": run["run_id"]}, headers=key)
    assert again.json() == made
    messages = await client.get(f"/v1/threads/{made['thread_id']}/messages")
    origin = await client.get(f"/v1/threads/{thread['thread_id']}/messages")
    assert messages["items"] == origin["items"]
    runs = await client.get(f"/v1/threads/{made['thread_id']}/runs")
    assert runs["items"] == []


async def test_a_fork_that_has_no_end_is_refused(client: Client) -> None:
    waiting = await client.start("quick", APPROVAL)
    await client.settled(waiting["run_id"])
    elsewhere = await client.start("quick", "hello")
    path = f"/v1/threads/{waiting['thread_id']}/fork"
    for body, status, code in (
        ({"run_id": waiting["run_id"]}, 409, "run_not_finished"),
        ({"run_id": elsewhere["run_id"]}, 404, "run_not_found"),
        ({"from_seq": 1000}, 422, "seq_beyond_log"),
        ({"from_seq": 0}, 422, "invalid_request"),
        ({"from_seq": 1, "run_id": waiting["run_id"]}, 422, "invalid_request"),
        ({"thread_id": elsewhere["thread_id"]}, 409, "thread_exists"),
    ):
        the_problem(await client.http.post(path, json=body), status, code)
    behind = await client.start("quick", "hello", thread_id=waiting["thread_id"])
    await client.post(f"/v1/runs/{behind['run_id']}/cancel")
    never = await client.http.post(path, json={"run_id": behind["run_id"]})
    the_problem(never, 409, "run_never_began")


# --- deleted, found, measured ---------------------------------------------------------------------


@pytest.fixture
async def family(client: Client) -> list[str]:
    """A thread, its child and its child's child."""
    ids: list[str] = []
    for _ in range(3):
        body = {"parent_thread_id": ids[-1]} if ids else {}
        ids.append((await client.post("/v1/threads", body, 201))["thread_id"])
    return ids


async def status_of(client: Client, thread_id: str) -> int:
    return (await client.http.get(f"/v1/threads/{thread_id}")).status_code


async def deleted(client: Client, thread_id: str, **params: str) -> int:
    return (await client.http.delete(f"/v1/threads/{thread_id}", params=params)).status_code


async def test_children_keep_their_parent_unless_somebody_says(
    client: Client, family: list[str]
) -> None:
    response = await client.http.delete(f"/v1/threads/{family[0]}")
    the_problem(response, 409, "has_children")
    assert [await status_of(client, one) for one in family] == [200] * 3


async def test_children_may_be_let_be(client: Client, family: list[str]) -> None:
    assert await deleted(client, family[0], children="detach") == 204
    assert [await status_of(client, one) for one in family] == [404, 200, 200]
    assert (await client.get(f"/v1/threads/{family[1]}"))["parent_thread_id"] is None
    assert (await client.get(f"/v1/threads/{family[2]}"))["parent_thread_id"] == family[1]


async def test_children_may_go_with_their_parent(client: Client, family: list[str]) -> None:
    assert await deleted(client, family[0], child_strategy="cascade") == 204
    assert [await status_of(client, one) for one in family] == [404] * 3


async def test_nobody_goes_while_a_run_occupies_one_of_them(
    client: Client, family: list[str]
) -> None:
    run = await client.start("quick", APPROVAL, thread_id=family[2])
    await client.settled(run["run_id"])
    response = await client.http.delete(f"/v1/threads/{family[0]}", params={"children": "cascade"})
    problem = the_problem(response, 409, "has_active_run")
    assert (problem["thread_id"], problem["active_run_id"]) == (family[2], run["run_id"])
    assert [await status_of(client, one) for one in family] == [200] * 3


async def test_threads_are_found_by_their_metadata(client: Client) -> None:
    mark = new_id()
    ids = [
        (await client.post("/v1/threads", {"metadata": {"mark": mark, "n": str(n)}}, 201))
        for n in range(3)
    ]
    found = await client.get("/v1/threads", **{"metadata.mark": mark})
    assert [one["thread_id"] for one in found["items"]] == [one["thread_id"] for one in ids[::-1]]
    one = await client.get("/v1/threads", **{"metadata.mark": mark, "metadata.n": "1"})
    assert [each["thread_id"] for each in one["items"]] == [ids[1]["thread_id"]]
    page = await client.get("/v1/threads", **{"metadata.mark": mark, "limit": 1})
    other = await client.http.get("/v1/threads", params={"cursor": page["next_cursor"], "limit": 1})
    the_problem(other, 400, "cursor_mismatch")


async def test_the_documents_say_how_to_measure_a_thread(
    client: Client, served_database: str
) -> None:
    run = await client.start("quick", APPROVAL)
    waiting = await client.settled(run["run_id"])
    await client.decide(waiting, "approve")
    await client.settled(run["run_id"])
    path = f"/v1/threads/{run['thread_id']}"
    found = await thread_size(served_database, run["thread_id"])
    assert {part: size["rows"] for part, size in found.items()} == {
        "events": len(await client.log(path)),
        "messages": (await client.get(path))["message_count"],
        "runs": 1,
        "tickets": 1,
    }
    assert all(size["bytes"] > 50 and size["merged_rows"] == 0 for size in found.values())
