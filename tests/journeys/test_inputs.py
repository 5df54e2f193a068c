"""The journey of somebody who has more to say while a run goes on, through two servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.conditions import Effects
from tests.support.problems import the_problem
from tests.support.servers import serving
from tests.support.streams import Client, start_body, types_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def both(shared_database_url: str, agents: Path) -> AsyncIterator[tuple[Client, Client]]:
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(2):
            one = await stack.enter_async_context(serving(shared_database_url, agents=agents))
            clients.append(await stack.enter_async_context(one.client()))
        yield clients[0], clients[1]


def said(text: str, mode: str = "steer", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "mode": mode, **more}


async def texts(client: Client, thread_id: str) -> list[tuple[str, str]]:
    page = await client.get(f"/v1/threads/{thread_id}/messages", limit=200)
    return [
        (message["role"], "".join(block.get("text", "") for block in message["content"]))
        for message in page["items"]
    ]


# --- steer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_a_run_hears_of_more_before_its_next_step(
    both: tuple[Client, Client], tmp_path: Path, by: str
) -> None:
    here, there = both
    effects = Effects(tmp_path / "effects")
    run = await here.start("quick", f'CALL look {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    path = f"/v1/runs/{run['run_id']}/inputs"
    if by == "thread":
        path = f"/v1/threads/{run['thread_id']}/messages"
    told = await there.post(path, said("and this"), 202)
    assert (told["run_id"], told["status"]) == (run["run_id"], "running")
    effects.release()
    assert (await there.settled(run["run_id"]))["outcome"] == "succeeded"
    log = await here.log(f"/v1/runs/{run['run_id']}")
    [queued] = [event for event in log if event["event_type"] == "input_queued"]
    assert [queued["input_id"]] == told["input_ids"]
    assert [role for role, _ in await texts(here, run["thread_id"])] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


async def test_no_end_overlooks_what_was_accepted(both: tuple[Client, Client]) -> None:
    """Whatever is said to a run just about to end is answered by it, or refused."""

    async def race(n: int) -> int:
        run = await both[n % 2].start("quick", "hello")
        path = f"/v1/runs/{run['run_id']}/inputs"
        sent = [
            await both[(n + 1) % 2].http.post(path, json=said(f"more {m}")) for m in range(n % 4)
        ]
        done = await both[0].settled(run["run_id"])
        assert done["outcome"] == "succeeded"
        for answer in sent:
            if answer.status_code != 202:
                the_problem(answer, 409, "run_finished")
        taken = [m for m, answer in enumerate(sent) if answer.status_code == 202]
        log = await texts(both[1], run["thread_id"])
        assert [text for role, text in log if role == "user"] == [
            "hello",
            *(f"more {m}" for m in taken),
        ]
        assert log[-1][0] == "assistant"
        return len(taken)

    for _ in range(3):
        await asyncio.gather(*(race(n) for n in range(16)))


async def test_a_run_that_waits_for_people_keeps_what_is_said(both: tuple[Client, Client]) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await there.settled(run["run_id"])
    path = f"/v1/runs/{run['run_id']}/inputs"
    told = await there.post(path, said("by the way"), 202)
    assert told["status"] == "waiting"
    assert (await here.run(run["run_id"]))["status"] == "waiting"
    async with there.events(f"/v1/runs/{run['run_id']}") as stream:
        assert (await stream.rest())[-1]["event_type"] == "input_queued"
    why = (await here.get(f"/v1/runs/{run['run_id']}/explain"))["reasons"]
    assert [reason["code"] for reason in why] == ["waiting_for_tickets"]
    await here.decide(waiting, "approve")
    assert (await there.settled(run["run_id"]))["outcome"] == "succeeded"
    log = await texts(here, run["thread_id"])
    assert ("user", "by the way") in log
    assert log[-1][0] == "assistant"


async def test_a_run_that_waits_for_its_tasks_is_woken(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    effects = Effects(tmp_path / "effects")
    run = await here.start("patient", f'CALL look {{"file": "{effects.file}", "hold": true}}')
    await effects.happened()
    assert (await here.settled(run["run_id"]))["status"] == "waiting"
    async with there.events(f"/v1/runs/{run['run_id']}", follow=1) as stream:
        await there.post(f"/v1/runs/{run['run_id']}/inputs", said("are you there?"), 202)
        await stream.until("input_queued")
        await stream.until("inference_complete")
        effects.release()
        await stream.rest()
    assert (await here.run(run["run_id"]))["outcome"] == "succeeded"


async def test_what_can_not_be_steered_says_why(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    done = await here.start("quick", "hello")
    await here.settled(done["run_id"])
    refused = await there.http.post(f"/v1/runs/{done['run_id']}/inputs", json=said("more"))
    the_problem(refused, 409, "run_finished")
    effects = Effects(tmp_path / "effects")
    held = await here.start("quick", f'CALL put {{"file": "{effects.file}", "hold": true}}')
    behind = await here.start("quick", "hello", thread_id=held["thread_id"])
    path = f"/v1/runs/{behind['run_id']}"
    assert (await there.post(f"{path}/inputs", said("more"), 202))["status"] == "created"
    await there.post(f"{path}/cancel")
    the_problem(await here.http.post(f"{path}/inputs", json=said("more")), 409, "run_finished")
    effects.release()
    await here.settled(held["run_id"])


# --- queue ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_what_is_queued_is_a_run_in_line(both: tuple[Client, Client], by: str) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["run_id"])
    path = f"/v1/runs/{first['run_id']}/inputs"
    if by == "thread":
        path = f"/v1/threads/{first['thread_id']}/messages"
    answer = await there.http.post(path, json=said("and then this", "queue"))
    told = answer.json()
    assert (answer.status_code, told["status"], len(told["input_ids"])) == (202, "created", 1)
    assert answer.headers["location"] == f"/v1/runs/{told['run_id']}"
    assert told["run_id"] != first["run_id"]
    await here.decide(waiting, "approve")
    assert (await there.settled(told["run_id"]))["outcome"] == "succeeded"
    *_, asked, answered = await texts(here, first["thread_id"])
    assert asked == ("user", "and then this")
    assert answered[0] == "assistant"


@pytest.mark.parametrize("mode", ["queue", "steer"])
async def test_on_an_idle_thread_a_run_is_started(both: tuple[Client, Client], mode: str) -> None:
    here, _ = both
    thread = await here.post("/v1/threads", {}, 201)
    path = f"/v1/threads/{thread['thread_id']}/messages"
    refused = await here.http.post(path, json=said("hello", mode))
    the_problem(refused, 422, "agent_required")
    told = await here.post(path, said("hello", mode, agent_id="quick"), 202)
    assert (await here.settled(told["run_id"]))["outcome"] == "succeeded"
    again = await here.post(path, said("hello again", mode), 202)
    assert (await here.settled(again["run_id"]))["agent_id"] == "quick"
    unknown = await here.http.post(f"/v1/threads/{uuid4()}/messages", json=said("hello", mode))
    the_problem(unknown, 404, "thread_not_found")


@pytest.mark.parametrize("mode", ["resume_open_run", "shout"])
async def test_a_mode_that_is_none_is_refused(both: tuple[Client, Client], mode: str) -> None:
    run = await both[0].start("quick", "hello")
    refused = await both[0].http.post(f"/v1/runs/{run['run_id']}/inputs", json=said("x", mode))
    the_problem(refused, 422, "invalid_request")
    await both[0].settled(run["run_id"])


# --- sent twice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["queue", "steer"])
async def test_what_is_sent_twice_under_a_key_is_read_once(
    both: tuple[Client, Client], mode: str
) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(run["run_id"])
    path, headers = f"/v1/runs/{run['run_id']}/inputs", {"Idempotency-Key": str(uuid4())}
    first, again = [
        await one.http.post(path, json=said("once", mode), headers=headers) for one in both
    ]
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    await there.decide(waiting, "approve")
    await here.settled(first.json()["run_id"])
    log = await texts(here, run["thread_id"])
    assert log.count(("user", "once")) == 1


# --- one thread, many starts ----------------------------------------------------------------------


async def test_of_many_starts_that_steer_one_runs_and_reads_them_all(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    call = f'CALL look {{"file": "{effects.file}", "hold": true}}'
    thread_id = (await both[0].post("/v1/threads", {}, 201))["thread_id"]
    bodies = [
        start_body("quick", f"{n} {call}", thread_id=thread_id, on_active="steer")
        for n in range(20)
    ]
    runs = await asyncio.gather(
        *(both[n % 2].post("/v1/runs", body, 202) for n, body in enumerate(bodies))
    )
    assert len({run["run_id"] for run in runs}) == 1
    await effects.happened()
    effects.release()
    assert (await both[1].settled(runs[0]["run_id"]))["outcome"] == "succeeded"
    log = await both[0].log(f"/v1/threads/{thread_id}")
    assert types_of(log).count("run_created") == 1
    assert types_of(log).count("input_queued") == 19
    heard = [text for role, text in await texts(both[0], thread_id) if role == "user"]
    assert sorted(heard) == sorted(body["messages"][0]["content"] for body in bodies)


async def test_of_many_starts_that_interrupt_the_last_is_heard_out(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "effects")
    call = f'CALL look {{"file": "{effects.file}", "hold": true}}'
    held = await both[0].start("quick", call)
    thread_id = held["thread_id"]
    await effects.happened()
    body = start_body("quick", call, thread_id=thread_id, on_active="interrupt")
    runs = await asyncio.gather(*(both[n % 2].post("/v1/runs", body, 202) for n in range(20)))
    assert (await both[0].settled(held["run_id"]))["outcome"] == "cancelled"
    effects.release()
    done = {run["run_id"]: await both[1].settled(run["run_id"]) for run in runs}
    log = await both[0].log(f"/v1/threads/{thread_id}")
    created = [event["run_id"] for event in log if event["event_type"] == "run_created"]
    assert set(created[1:]) == set(done)
    assert {run["outcome"] for run in done.values()} <= {"succeeded", "cancelled"}
    assert done[created[-1]]["outcome"] == "succeeded"
    begun = [event["run_id"] for event in log if event["event_type"] == "run_start"]
    assert begun == [run_id for run_id in created if run_id in begun]
    after = await both[0].get(f"/v1/threads/{thread_id}")
    assert (after["open_run_id"], after["queue_length"]) == (None, 0)


@pytest.mark.parametrize("way", ["start", "inputs"])
async def test_a_run_that_waits_makes_way_at_once(both: tuple[Client, Client], way: str) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(first["run_id"])
    if way == "start":
        body = start_body("quick", "no", thread_id=first["thread_id"], on_active="interrupt")
        second = await there.post("/v1/runs", body, 202)
    else:
        path = f"/v1/runs/{first['run_id']}/inputs"
        second = await there.post(path, said("no", "interrupt_then_queue"), 202)
    assert (await here.run(first["run_id"]))["outcome"] == "cancelled"
    assert (await here.settled(second["run_id"]))["outcome"] == "succeeded"
    reason = (await here.run(first["run_id"]))["termination"]
    assert second["run_id"] in str(reason)


async def test_an_interrupted_run_makes_way_for_those_in_line(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(first["run_id"])
    place = {"thread_id": first["thread_id"]}
    second = await there.start("quick", 'CALL risky {"what": "this"}', **place)
    third = await there.start("quick", "hello", **place, on_active="interrupt")
    assert third["status"] == "created"
    waiting = await here.settled(second["run_id"])
    assert waiting["status"] == "waiting"
    await here.decide(waiting, "approve")
    assert (await here.settled(third["run_id"]))["outcome"] == "succeeded"


async def test_a_start_that_steers_can_not_name_its_run(both: tuple[Client, Client]) -> None:
    body = start_body("quick", "hello", on_active="steer", run_id=str(uuid4()))
    the_problem(await both[0].http.post("/v1/runs", json=body), 422, "invalid_request")


# --- what waits -----------------------------------------------------------------------------------


async def test_what_waits_is_listed_and_can_be_taken_back(both: tuple[Client, Client]) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(run["run_id"])
    to_run, thread = f"/v1/runs/{run['run_id']}/inputs", f"/v1/threads/{run['thread_id']}"
    sent = [await here.post(to_run, said(text), 202) for text in ("one", "two", "three")]
    behind = await here.post(f"{thread}/messages", said("four", "queue"), 202)
    ids = [one["input_ids"][0] for one in [*sent, behind]]
    page = await there.get(f"{thread}/inputs", limit=3)
    rest = await there.get(f"{thread}/inputs", limit=3, cursor=page["next_cursor"])
    items = [*page["items"], *rest["items"]]
    assert [item["id"] for item in items] == ids
    assert [item["run_id"] for item in items] == [run["run_id"]] * 3 + [behind["run_id"]]
    assert items[0]["message"]["content"] == [{"type": "text", "text": "one"}]
    assert (await there.http.delete(f"{thread}/inputs/{ids[1]}")).status_code == 204
    again = await there.http.delete(f"{thread}/inputs/{ids[1]}")
    the_problem(again, 404, "input_not_found")
    await here.decide(waiting, "approve")
    assert (await here.settled(behind["run_id"]))["outcome"] == "succeeded"
    users = [text for role, text in await texts(there, run["thread_id"]) if role == "user"]
    assert users[1:] == ["one", "three", "four"]
    assert (await here.get(f"{thread}/inputs"))["items"] == []
    taken = (await here.get(f"{thread}/inputs", status="consumed"))["items"]
    assert [item["id"] for item in taken] == [ids[0], ids[2], ids[3]]
    log = (await here.get(f"{thread}/messages"))["items"]
    assert [message["id"] for message in log if message["seq"] == taken[0]["seq"]] == [
        taken[0]["message"]["id"]
    ]
    late = await there.http.delete(f"{thread}/inputs/{ids[0]}")
    the_problem(late, 409, "already_consumed")
    unknown = await there.http.delete(f"{thread}/inputs/{uuid4()}")
    the_problem(unknown, 404, "input_not_found")


async def test_what_waits_can_be_changed_by_whoever_has_seen_it(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(run["run_id"])
    told = await here.post(f"/v1/runs/{run['run_id']}/inputs", said("one"), 202)
    path = f"/v1/threads/{run['thread_id']}/inputs"
    [item] = (await there.get(path))["items"]

    async def change(text: str, revision: int) -> httpx2.Response:
        return await there.http.patch(
            f"{path}/{told['input_ids'][0]}",
            json={"message": {"role": "user", "content": text}},
            headers={"If-Match": f'"{revision}"'},
        )

    changed = await change("two", item["revision"])
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    assert changed.json()["message"]["id"] == item["message"]["id"]
    the_problem(await change("three", item["revision"]), 412, "revision_mismatch")
    the_problem(await change("", 2), 422, "message_empty")
    await here.decide(waiting, "approve")
    await here.settled(run["run_id"])
    heard = await texts(here, run["thread_id"])
    assert [text for role, text in heard if role == "user"][1:] == ["two"]
    the_problem(await change("four", 2), 409, "already_consumed")


async def test_a_run_with_nothing_left_to_read_is_cancelled(both: tuple[Client, Client]) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["run_id"])
    thread = f"/v1/threads/{first['thread_id']}"
    behind = await here.post(f"{thread}/messages", said("never mind", "queue"), 202)
    [input_id] = behind["input_ids"]
    assert (await there.http.delete(f"{thread}/inputs/{input_id}")).status_code == 204
    assert (await here.run(behind["run_id"]))["outcome"] == "cancelled"
    assert (await here.get(thread))["queue_length"] == 0
    await here.decide(waiting, "approve")
    assert (await here.settled(first["run_id"]))["outcome"] == "succeeded"


async def test_what_is_taken_back_is_not_read_by_a_retry(both: tuple[Client, Client]) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["run_id"])
    thread = f"/v1/threads/{first['thread_id']}"
    behind = await here.post(f"{thread}/messages", said("keep", "queue"), 202)
    path = f"/v1/runs/{behind['run_id']}"
    [more] = (await here.post(f"{path}/inputs", said("drop"), 202))["input_ids"]
    assert (await there.http.delete(f"{thread}/inputs/{more}")).status_code == 204
    await there.post(f"{path}/cancel")
    [left] = (await here.get(f"{thread}/inputs", status="retracted"))["items"]
    assert [left["id"]] == behind["input_ids"]
    retried = await here.post(f"{path}/retry", {}, 202)
    await here.decide(waiting, "approve")
    assert (await here.settled(retried["run_id"]))["outcome"] == "succeeded"
    users = [text for role, text in await texts(there, first["thread_id"]) if role == "user"]
    assert users[1:] == ["keep"]


async def test_what_is_taken_back_is_not_answered(both: tuple[Client, Client]) -> None:
    """At any moment: a message is read and answered, or neither."""

    async def race(n: int) -> None:
        run = await both[0].start("quick", "hello")
        path, thread = f"/v1/runs/{run['run_id']}/inputs", f"/v1/threads/{run['thread_id']}"
        sent = await both[n % 2].http.post(path, json=said("more"))
        gone = False
        if sent.status_code == 202:
            [input_id] = sent.json()["input_ids"]
            gone = (await both[1].http.delete(f"{thread}/inputs/{input_id}")).status_code == 204
        assert (await both[0].settled(run["run_id"]))["outcome"] == "succeeded"
        roles = [role for role, _ in await texts(both[1], run["thread_id"])]
        asked = 1 + (sent.status_code == 202 and not gone)
        assert roles.count("user") == asked
        # Read at once, both may have one answer; nothing is answered twice.
        assert roles[-1] == "assistant"
        assert 1 <= roles.count("assistant") <= asked

    for _ in range(3):
        await asyncio.gather(*(race(n) for n in range(16)))
