"""Pending inputs: listed, changed, retracted."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.conversations import message_body, texts
from tests.support.problems import the_problem
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio


async def test_pending_inputs_are_listed_and_can_be_retracted(both: tuple[Client, Client]) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(run["id"])
    to_run, thread = f"/v1/runs/{run['id']}/inputs", f"/v1/threads/{run['thread_id']}"
    sent = [await here.post(to_run, message_body(text), 202) for text in ("one", "two", "three")]
    behind = await here.post(f"{thread}/messages", message_body("four", "queue"), 202)
    ids = [one["input_ids"][0] for one in [*sent, behind]]
    page = await there.get(f"{thread}/inputs", limit=3)
    next_page = await there.get(f"{thread}/inputs", limit=3, cursor=page["next_cursor"])
    items = [*page["items"], *next_page["items"]]
    assert [item["id"] for item in items] == ids
    assert [item["run_id"] for item in items] == [run["id"]] * 3 + [behind["run_id"]]
    assert items[0]["message"]["content"] == [{"type": "text", "text": "one"}]
    assert (await there.http.delete(f"{thread}/inputs/{ids[1]}")).status_code == 204
    assert (await here.http.delete(f"{thread}/inputs/{ids[1]}")).status_code == 204, "repeated"
    assert [each["id"] for each in (await here.get(f"{thread}/inputs"))["items"]] == [
        ids[0],
        *ids[2:],
    ]
    [retracted] = (await here.get(f"{thread}/inputs", status="retracted"))["items"]
    assert retracted == await here.get(f"{thread}/inputs/{ids[1]}")
    assert (retracted["id"], retracted["retracted_by"]) == (ids[1], "local")
    changed = await here.http.patch(
        f"{thread}/inputs/{ids[1]}",
        json={"message": {"role": "user", "content": "five"}},
        headers={"If-Match": '"1"'},
    )
    the_problem(changed, 409, "input_retracted")
    await here.decide(waiting, "approve")
    assert (await here.settled(behind["run_id"]))["outcome"] == "succeeded"
    users = [text for role, text in await texts(there, run["thread_id"]) if role == "user"]
    assert users[1:] == ["one", "three", "four"]
    assert (await here.get(f"{thread}/inputs"))["items"] == []
    consumed = (await here.get(f"{thread}/inputs", status="consumed"))["items"]
    assert [item["id"] for item in consumed] == [ids[0], ids[2], ids[3]]
    log = (await here.get(f"{thread}/messages"))["items"]
    assert [message["id"] for message in log if message["seq"] == consumed[0]["seq"]] == [
        consumed[0]["message"]["id"]
    ]
    late = await there.http.delete(f"{thread}/inputs/{ids[0]}")
    the_problem(late, 409, "already_consumed")
    unknown = await there.http.delete(f"{thread}/inputs/{uuid4()}")
    the_problem(unknown, 404, "input_not_found")


async def test_a_pending_input_is_changed_with_its_current_revision(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(run["id"])
    accepted = await here.post(f"/v1/runs/{run['id']}/inputs", message_body("one"), 202)
    path = f"/v1/threads/{run['thread_id']}/inputs"
    [item] = (await there.get(path))["items"]

    async def change(text: str, revision: int) -> httpx2.Response:
        return await there.http.patch(
            f"{path}/{accepted['input_ids'][0]}",
            json={"message": {"role": "user", "content": text}},
            headers={"If-Match": f'"{revision}"'},
        )

    changed = await change("two", item["revision"])
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    assert changed.json()["message"]["id"] == item["message"]["id"]
    the_problem(await change("three", item["revision"]), 412, "revision_mismatch")
    the_problem(await change("", 2), 422, "message_empty")
    await here.decide(waiting, "approve")
    await here.settled(run["id"])
    received = await texts(here, run["thread_id"])
    assert [text for role, text in received if role == "user"][1:] == ["two"]
    the_problem(await change("four", 2), 409, "already_consumed")


async def test_a_queued_run_whose_inputs_are_all_retracted_is_cancelled(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["id"])
    thread = f"/v1/threads/{first['thread_id']}"
    behind = await here.post(f"{thread}/messages", message_body("never mind", "queue"), 202)
    [input_id] = behind["input_ids"]
    assert (await there.http.delete(f"{thread}/inputs/{input_id}")).status_code == 204
    assert (await here.run(behind["run_id"]))["outcome"] == "cancelled"
    assert (await here.get(thread))["queue_length"] == 0
    retry = await here.http.post(f"/v1/runs/{behind['run_id']}/retry", json={})
    the_problem(retry, 409, "not_retryable")
    await here.decide(waiting, "approve")
    assert (await here.settled(first["id"]))["outcome"] == "succeeded"


async def test_a_retry_does_not_read_retracted_inputs(both: tuple[Client, Client]) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["id"])
    thread = f"/v1/threads/{first['thread_id']}"
    behind = await here.post(f"{thread}/messages", message_body("keep", "queue"), 202)
    path = f"/v1/runs/{behind['run_id']}"
    [more] = (await here.post(f"{path}/inputs", message_body("drop"), 202))["input_ids"]
    assert (await there.http.delete(f"{thread}/inputs/{more}")).status_code == 204
    await there.post(f"{path}/cancel")
    left = (await here.get(f"{thread}/inputs", status="retracted"))["items"]
    assert [(each["id"], each["retracted_by"]) for each in left] == [
        (behind["input_ids"][0], None),
        (more, "local"),
    ]
    retried = await here.post(f"{path}/retry", {}, 202)
    await here.decide(waiting, "approve")
    assert (await here.settled(retried["id"]))["outcome"] == "succeeded"
    users = [text for role, text in await texts(there, first["thread_id"]) if role == "user"]
    assert users[1:] == ["keep"]


async def test_a_retracted_input_is_not_answered(both: tuple[Client, Client]) -> None:
    """At each moment, a message is either read and answered, or neither."""

    async def race(n: int) -> None:
        run = await both[0].start("quick", "hello")
        path, thread = f"/v1/runs/{run['id']}/inputs", f"/v1/threads/{run['thread_id']}"
        sent = await both[n % 2].http.post(path, json=message_body("more"))
        gone = False
        if sent.status_code == 202:
            [input_id] = sent.json()["input_ids"]
            gone = (await both[1].http.delete(f"{thread}/inputs/{input_id}")).status_code == 204
        assert (await both[0].settled(run["id"]))["outcome"] == "succeeded"
        roles = [role for role, _ in await texts(both[1], run["thread_id"])]
        asked = 1 + (sent.status_code == 202 and not gone)
        assert roles.count("user") == asked
        # Two messages read together may share one answer; no message is answered twice.
        assert roles[-1] == "assistant"
        assert 1 <= roles.count("assistant") <= asked

    for _ in range(3):
        await asyncio.gather(*(race(n) for n in range(16)))


async def test_each_change_of_a_pending_input_is_an_event(both: tuple[Client, Client]) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(run["id"])
    path, thread = f"/v1/runs/{run['id']}/inputs", f"/v1/threads/{run['thread_id']}"
    ids = [
        (await here.post(path, message_body(text), 202))["input_ids"][0] for text in ("one", "two")
    ]
    items = (await there.get(f"{thread}/inputs"))["items"]
    messages = {item["id"]: item["message"]["id"] for item in items}
    body = {"message": {"role": "user", "content": "three"}}
    await there.http.patch(f"{thread}/inputs/{ids[1]}", json=body, headers={"If-Match": '"1"'})
    await there.http.delete(f"{thread}/inputs/{ids[0]}")
    await here.decide(waiting, "approve")
    await here.settled(run["id"])
    log = await there.log(f"/v1/runs/{run['id']}")
    envelope = ("seq", "ts", "thread_id", "run_id")
    input_events = [
        {name: value for name, value in event.items() if name not in envelope}
        for event in log
        if event["event_type"].startswith("input")
    ]
    [read] = [
        item["seq"] for item in (await here.get(f"{thread}/inputs", status="consumed"))["items"]
    ]
    assert input_events == [
        *(
            {"event_type": "input_queued", "input_id": id_, "message_id": messages[id_]}
            for id_ in ids
        ),
        {
            "event_type": "input_changed",
            "input_id": ids[1],
            "message_id": messages[ids[1]],
            "revision": 2,
        },
        {"event_type": "input_retracted", "input_id": ids[0], "message_id": messages[ids[0]]},
        {
            "event_type": "input_delivered",
            "input_id": ids[1],
            "message_id": messages[ids[1]],
            "message_seq": read,
        },
    ]


# --- revisions and keys ---------------------------------------------------------------------------


async def test_a_retraction_with_an_old_revision_is_refused(both: tuple[Client, Client]) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(run["id"])
    thread = f"/v1/threads/{run['thread_id']}"
    accepted = await here.post(f"/v1/runs/{run['id']}/inputs", message_body("one"), 202)
    path = f"{thread}/inputs/{accepted['input_ids'][0]}"
    found = await there.http.get(path)
    assert (found.status_code, found.headers["etag"]) == (200, '"1"')
    assert found.json()["status"] == "pending"
    body = {"message": {"role": "user", "content": "two"}}
    await there.http.patch(path, json=body, headers={"If-Match": '"1"'})
    refused = await here.http.delete(path, headers={"If-Match": '"1"'})
    the_problem(refused, 412, "revision_mismatch")
    for nonsense in ("1", "*", '"one"'):
        refused = await here.http.delete(path, headers={"If-Match": nonsense})
        the_problem(refused, 422, "invalid_request")
    assert (await here.http.delete(path, headers={"If-Match": '"2"'})).status_code == 204
    assert (await there.get(path))["status"] == "retracted"
    await there.post(f"{thread}/cancel")


async def test_changes_under_one_key_take_effect_once(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(run["id"])
    thread = f"/v1/threads/{run['thread_id']}"
    accepted = await here.post(f"/v1/runs/{run['id']}/inputs", message_body("one"), 202)
    more = await here.post(f"/v1/runs/{run['id']}/inputs", message_body("two"), 202)
    one, two = accepted["input_ids"][0], more["input_ids"][0]
    body = {"message": {"role": "user", "content": "three"}}
    requests: list[tuple[str, str, dict[str, Any] | None]] = [
        ("PATCH", f"{thread}/inputs/{one}", body),
        ("DELETE", f"{thread}/inputs/{two}", None),
    ]
    for method, path, content in requests:
        headers = {"Idempotency-Key": str(uuid4())}
        if method == "PATCH":
            headers["If-Match"] = '"1"'
        first, again = [
            await client.http.request(method, path, json=content, headers=headers)
            for client in both
        ]
        assert first.status_code in (200, 204), first.text
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert again.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in first.headers
    types = types_of(await there.log(f"/v1/runs/{run['id']}"))
    for event_type in ("input_changed", "input_retracted"):
        assert types.count(event_type) == 1
    await there.post(f"{thread}/cancel")
