"""Whole threads: cancelled with their queued runs, forked, deleted with their children, measured."""

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
from app.queries.wait import wait_until_settled
from tests.support.event_order import check_run
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.problems import the_problem
from tests.support.replicas import ANN, Replica, Run, an_agent, open_replica, texts_of, types_of
from tests.support.routes import UNKNOWN
from tests.support.streams import Client
from tests.support.thread_sizes import thread_size

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'


async def assert_cancelled(replica: Replica, run: Run) -> ThreadCancelAnswer:
    return await cancel_thread(replica.ctx, ANN, run.thread_id, reason="enough")


async def assert_all_cancelled(*runs: Run) -> None:
    for run in runs:
        record = run.record
        assert await wait_until_settled(
            run.replica.ctx, record.tenant, run.thread_id, run.id, 15, only_done=True
        )
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("enough")


# --- cancelled ------------------------------------------------------------------------------------


async def test_cancelling_a_thread_cancels_its_queued_runs(database_url: str) -> None:
    gate = Gate()
    async with open_replica(
        database_url, an_agent(), in_order(turn(gate, "one"), turn("next"))
    ) as replica:
        first = await replica.start()
        await asyncio.wait_for(gate.reached.wait(), 15)
        behind = [await replica.start(thread_id=first.thread_id) for _ in range(3)]
        answer = await assert_cancelled(replica, first)
        assert [run.id for run in answer.runs] == [first.id, *(run.id for run in behind)]
        assert [run.is_done for run in answer.runs] == [False, True, True, True]
        assert not answer.is_settled
        await assert_all_cancelled(first, *behind)
        for run in behind:
            emitted = await run.finished()
            assert types_of(emitted)[1:] == ["cancel_requested", "state_snapshot", "run_finish"]
        again = await assert_cancelled(replica, first)
        assert (again.runs, again.is_settled) == ((), True)
        following = await replica.start("and now?", thread_id=first.thread_id)
        await following.finished()
        assert [text for _, text in texts_of(await first.log())] == ["go", "and now?", "next"]
    assert await broken_invariants(database_url) == {}


async def test_cancelling_a_waiting_thread_takes_effect_at_once(database_url: str) -> None:
    probe = Probe(asks=1)
    script = in_order(turn(probe.call("c1")), turn("next"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        first = await replica.start()
        await first.finished()
        second = await replica.start(thread_id=first.thread_id)
        answer = await assert_cancelled(replica, first)
        assert answer.is_settled
        await assert_all_cancelled(first, second)
    assert await broken_invariants(database_url) == {}


async def test_a_thread_whose_worker_is_lost_is_cancelled_too(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate, "one"))) as lost:
        first = await lost.start()
        await asyncio.wait_for(gate.reached.wait(), 15)
        behind = await lost.start(thread_id=first.thread_id)
        await lost.kill()
        async with open_replica(database_url, an_agent(), in_order(turn("two"))) as replica:
            await assert_cancelled(replica, first)
            await assert_all_cancelled(replica.same(first), replica.same(behind))
            check_run(await replica.same(first).until("run_finish"))


async def test_a_thread_is_cancelled_over_http(client: Client) -> None:
    first = await client.start("talker", "word " * 100)
    thread_id = first["thread_id"]
    second = await client.start("quick", "hello", thread_id=thread_id)
    path = f"/v1/threads/{thread_id}/cancel"
    key = {"Idempotency-Key": "all of it"}
    response = await client.http.post(path, json={"reason": "no"}, headers=key)
    assert response.status_code == 202
    assert [run["id"] for run in response.json()["runs"]] == [first["id"], second["id"]]
    again = await client.http.post(path, json={"reason": "no"}, headers=key)
    assert (again.status_code, again.json()) == (202, response.json())
    settled = await client.http.post(path, json={"reason": "no"}, headers=key, params={"wait": 20})
    assert settled.status_code == 200
    assert [run["outcome"] for run in settled.json()["runs"]] == ["cancelled", "cancelled"]
    idle = await client.post(path)
    assert idle == {"thread_id": thread_id, "is_settled": True, "runs": []}
    the_problem(await client.http.post(f"/v1/threads/{UNKNOWN}/cancel"), 404, "thread_not_found")


# --- forked ---------------------------------------------------------------------------------------


async def forked(replica: Replica, origin: Run, **where: Any) -> Thread:
    request = {"to_seq": None, "run_id": None, "title": None, "resource_id": None}
    cancel_request = ForkRequest(
        thread_id=ThreadId(new_id()), metadata=None, **{**request, **where}
    )
    return await fork(replica.ctx, ANN, origin.thread_id, cancel_request)


async def test_a_fork_has_the_log_up_to_its_end_and_continues_separately(database_url: str) -> None:
    script = in_order(turn("one"), turn("two"), turn("other"))
    async with open_replica(database_url, an_agent(), script) as replica:
        first = await replica.start("first")
        await first.finished()
        second = await replica.start("second", thread_id=first.thread_id)
        await second.finished()
        log = await first.log()
        by_seq = await forked(replica, first, to_seq=2)
        by_run = await forked(replica, first, run_id=first.id)
        whole = await forked(replica, first)
        assert by_seq.next_message_seq == by_run.next_message_seq == 3
        assert whole.next_message_seq == 5
        assert {one.parent_thread_id for one in (by_seq, by_run, whole)} == {first.thread_id}
        other = await replica.start("instead", thread_id=by_seq.id)
        await other.finished()
        assert await first.log() == log
        copied = (await other.log())[:2]
        assert [entry.message for entry in copied] == [entry.message for entry in log[:2]]
        assert [entry.seq for entry in await other.log()] == [1, 2, 3, 4]
        emitted = await other.finished()
        assert emitted[0]["seq"] == 1
    assert [message.text for message in script.requests[2].messages] == ["first", "one", "instead"]
    assert await broken_invariants(database_url) == {}


async def test_a_fork_in_the_middle_of_a_step_gets_results_for_its_open_calls(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("done"), turn("other"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        first = await replica.start()
        await first.finished()
        cut = await forked(replica, first, to_seq=2)
        other = await replica.start("instead", thread_id=cut.id)
        assert (await other.finished())[-1]["termination"] == {"type": "natural_end"}
    roles = [message.role.value for message in script.requests[2].messages]
    assert roles == ["user", "assistant", "tool", "user"]


async def test_a_fork_over_http(client: Client) -> None:
    thread = await client.post("/v1/threads", {"title": "mine", "metadata": {"a": "b"}}, 201)
    path = f"/v1/threads/{thread['id']}/fork"
    run = await client.start("quick", "hello", thread_id=thread["id"])
    await client.settled(run["id"])
    key = {"Idempotency-Key": "one copy"}
    first = await client.http.post(path, json={"run_id": run["id"]}, headers=key)
    assert first.status_code == 201
    made = first.json()
    assert first.headers["location"] == f"/v1/threads/{made['id']}"
    assert made["parent_thread_id"] == thread["id"]
    assert (made["title"], made["metadata"], made["message_count"]) == ("mine", {"a": "b"}, 2)
    again = await client.http.post(path, json={"run_id": run["id"]}, headers=key)
    assert again.json() == made
    messages = await client.get(f"/v1/threads/{made['id']}/messages")
    origin = await client.get(f"/v1/threads/{thread['id']}/messages")
    assert messages["items"] == origin["items"]
    runs = await client.get(f"/v1/threads/{made['id']}/runs")
    assert runs["items"] == []


async def test_a_fork_with_an_invalid_end_is_refused(client: Client) -> None:
    waiting = await client.start("quick", APPROVAL)
    await client.settled(waiting["id"])
    other_thread_run = await client.start("quick", "hello")
    path = f"/v1/threads/{waiting['thread_id']}/fork"
    for body, status, code in (
        ({"run_id": waiting["id"]}, 409, "run_not_finished"),
        ({"run_id": other_thread_run["id"]}, 404, "run_not_found"),
        ({"to_seq": 1000}, 422, "seq_beyond_log"),
        ({"to_seq": 0}, 422, "invalid_request"),
        ({"to_seq": 1, "run_id": waiting["id"]}, 422, "invalid_request"),
        ({"thread_id": other_thread_run["thread_id"]}, 409, "thread_exists"),
    ):
        the_problem(await client.http.post(path, json=body), status, code)
    behind = await client.start("quick", "hello", thread_id=waiting["thread_id"])
    await client.post(f"/v1/runs/{behind['id']}/cancel")
    invalid = await client.http.post(path, json={"run_id": behind["id"]})
    the_problem(invalid, 409, "run_never_began")


# --- deleted, found, measured ---------------------------------------------------------------------


@pytest.fixture
async def family(client: Client) -> list[str]:
    """A thread, its child and its child's child."""
    ids: list[str] = []
    for _ in range(3):
        body = {"parent_thread_id": ids[-1]} if ids else {}
        ids.append((await client.post("/v1/threads", body, 201))["id"])
    return ids


async def status_of(client: Client, thread_id: str) -> int:
    return (await client.http.get(f"/v1/threads/{thread_id}")).status_code


async def deleted(client: Client, thread_id: str, **params: str) -> int:
    return (await client.http.delete(f"/v1/threads/{thread_id}", params=params)).status_code


async def test_a_thread_with_children_is_not_deleted_by_default(
    client: Client, family: list[str]
) -> None:
    response = await client.http.delete(f"/v1/threads/{family[0]}")
    the_problem(response, 409, "has_children")
    assert [await status_of(client, one) for one in family] == [200] * 3


async def test_children_can_be_detached(client: Client, family: list[str]) -> None:
    assert await deleted(client, family[0], children="detach") == 204
    assert [await status_of(client, one) for one in family] == [404, 200, 200]
    assert (await client.get(f"/v1/threads/{family[1]}"))["parent_thread_id"] is None
    assert (await client.get(f"/v1/threads/{family[2]}"))["parent_thread_id"] == family[1]


async def test_children_can_be_deleted_with_their_parent(client: Client, family: list[str]) -> None:
    assert await deleted(client, family[0], children="cascade") == 204
    assert [await status_of(client, one) for one in family] == [404] * 3


async def test_no_thread_of_a_family_is_deleted_while_one_has_an_open_run(
    client: Client, family: list[str]
) -> None:
    run = await client.start("quick", APPROVAL, thread_id=family[2])
    await client.settled(run["id"])
    response = await client.http.delete(f"/v1/threads/{family[0]}", params={"children": "cascade"})
    problem = the_problem(response, 409, "has_active_run")
    assert (problem["thread_id"], problem["active_run_id"]) == (family[2], run["id"])
    assert [await status_of(client, one) for one in family] == [200] * 3


async def test_threads_are_found_by_their_metadata(client: Client) -> None:
    marker = new_id()
    ids = [
        (await client.post("/v1/threads", {"metadata": {"mark": marker, "n": str(n)}}, 201))
        for n in range(3)
    ]
    found = await client.get("/v1/threads", **{"metadata.mark": marker})
    assert [one["id"] for one in found["items"]] == [one["id"] for one in ids[::-1]]
    one = await client.get("/v1/threads", **{"metadata.mark": marker, "metadata.n": "1"})
    assert [each["id"] for each in one["items"]] == [ids[1]["id"]]
    page = await client.get("/v1/threads", **{"metadata.mark": marker, "limit": 1})
    other = await client.http.get("/v1/threads", params={"cursor": page["next_cursor"], "limit": 1})
    the_problem(other, 400, "cursor_mismatch")


async def test_the_documented_query_measures_a_thread(client: Client, served_database: str) -> None:
    run = await client.start("quick", APPROVAL)
    waiting = await client.settled(run["id"])
    await client.decide(waiting, "approve")
    await client.settled(run["id"])
    path = f"/v1/threads/{run['thread_id']}"
    found = await thread_size(served_database, run["thread_id"])
    assert {part: size["rows"] for part, size in found.items()} == {
        "events": len(await client.log(path)),
        "messages": (await client.get(path))["message_count"],
        "runs": 1,
        "tickets": 1,
    }
    assert all(size["bytes"] > 50 and size["merged_rows"] == 0 for size in found.values())
