"""Messages with ids that clients choose: a repeated message is recognised, over every route that sends one."""

from typing import Any

import pytest

from app.clock import new_id
from tests.support.problems import the_problem
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'


def message(text: Any, id: str | None = None, **more: Any) -> dict[str, Any]:
    named = {} if id is None else {"id": id}
    return {"role": "user", "content": text, **named, **more}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**start_body("quick", ""), "messages": list(messages), **more}


async def started(client: Client, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await client.post("/v1/runs", body(*messages, **more), 202)


async def texts_of(client: Client, run: dict[str, Any], **params: Any) -> list[tuple[str, str]]:
    """The messages of clients: id and text."""
    path = f"/v1/threads/{run['thread_id']}/messages"
    page = await client.get(path, order="asc", **params)
    return [
        (each["id"], each["content"][0]["text"]) for each in page["items"] if each["role"] == "user"
    ]


async def test_a_repeated_start_is_answered_with_the_run_that_has_the_message(
    client: Client,
) -> None:
    thread, first, second = new_id(), new_id(), new_id()
    run = await started(client, message("one", first), thread_id=thread)
    await client.ended(run["id"])
    assert (await client.run(run["id"]))["input"]["trigger_message_ids"] == [first]
    again = await started(client, message("one", first.upper()), thread_id=thread)
    assert again["id"] == run["id"]
    both = await started(client, message("one", first), message("two", second), thread_id=thread)
    assert both["id"] != run["id"]
    await client.ended(both["id"])
    assert await texts_of(client, run) == [(first, "one"), (second, "two")]
    assert (await client.run(both["id"]))["input"]["trigger_message_ids"] == [second]
    elsewhere = await started(client, message("one", first))
    assert elsewhere["id"] not in (run["id"], both["id"]), "ids are unique in their thread only"
    await client.ended(elsewhere["id"])


async def test_another_content_under_a_known_id_changes_nothing(client: Client) -> None:
    thread, known = new_id(), new_id()
    run = await started(client, message("one", known), thread_id=thread)
    await client.ended(run["id"])
    for other in (
        message("two", known),
        {**message("one", known), "role": "assistant"},
        message([{"type": "text", "text": "one"}, {"type": "text", "text": "more"}], known),
    ):
        refused = await client.http.post(
            "/v1/runs", json=body(message("new"), other, thread_id=thread)
        )
        problem = the_problem(refused, 409, "message_id_conflict")
        assert problem["message_id"] == known
    another_run = body(message("one", known), thread_id=thread, run_id=new_id())
    refused = await client.http.post("/v1/runs", json=another_run)
    assert the_problem(refused, 409, "message_id_conflict")["run_id"] == run["id"]
    assert await texts_of(client, run) == [(known, "one")]
    twice = await client.http.post("/v1/runs", json=body(message("a", known), message("b", known)))
    assert "two messages have the same id" in twice.text
    assert twice.status_code == 422


async def test_pending_messages_are_recognised_too(client: Client) -> None:
    run = await client.start("quick", APPROVAL)
    await client.settled(run["id"])
    known, queued = new_id(), new_id()
    path = f"/v1/runs/{run['id']}/inputs"
    steered = {"messages": [message("more", known)], "mode": "steer"}
    accepted = await client.post(path, steered, 202)
    assert (accepted["run_id"], len(accepted["input_ids"])) == (run["id"], 1)
    again = await client.post(path, steered, 202)
    assert (again["run_id"], again["input_ids"]) == (run["id"], [])
    behind = {"messages": [message("next", queued)], "mode": "queue"}
    of_thread = f"/v1/threads/{run['thread_id']}/messages"
    first = await client.post(of_thread, behind, 202)
    second = await client.post(of_thread, behind, 202)
    assert first["run_id"] == second["run_id"] != run["id"]
    start = await started(client, message("next", queued), thread_id=run["thread_id"])
    assert start["id"] == first["run_id"]
    for place, mode in ((path, "steer"), (of_thread, "queue"), (of_thread, "steer")):
        wrong = {"messages": [message("other", known)], "mode": mode}
        the_problem(await client.http.post(place, json=wrong), 409, "message_id_conflict")
    await client.decide(await client.settled(run["id"]), "approve")
    await client.ended(run["id"])
    await client.ended(first["run_id"])
    assert (await texts_of(client, run))[1:] == [(known, "more"), (queued, "next")]
    read = await client.post(path, steered, 202)
    assert (read["run_id"], read["input_ids"]) == (run["id"], []), "it was read meanwhile"


async def test_a_retry_does_not_send_messages_that_were_sent_again(client: Client) -> None:
    run = await client.start("quick", APPROVAL)
    known = new_id()
    path = f"/v1/threads/{run['thread_id']}/messages"
    sent = {"messages": [message("next", known)], "mode": "queue"}
    behind = (await client.post(path, sent, 202))["run_id"]
    await client.post(f"/v1/runs/{behind}/cancel")
    await client.post(path, {**sent, "mode": "steer"}, 202)
    refused = await client.http.post(f"/v1/runs/{behind}/retry", json={})
    assert "were sent again" in the_problem(refused, 409, "not_retryable")["detail"]
    await client.post(f"/v1/runs/{run['id']}/cancel")
    await client.ended(run["id"])


async def test_an_answer_is_regenerated_and_a_message_edited(client: Client) -> None:
    run = await client.start("quick", "hello")
    await client.ended(run["id"])
    thread = run["thread_id"]
    again = await client.post(
        "/v1/runs", {"thread_id": thread, "replaces": {"run_id": run["id"]}}, 202
    )
    await client.ended(again["id"])
    assert (await client.run(run["id"]))["rolled_back_by_run_id"] == again["id"]
    [(asked, text)] = await texts_of(client, run)
    assert text == "hello"
    edited = new_id()
    edit = body(message("bye", edited), thread_id=thread, replaces={"message_id": asked})
    new = await client.post("/v1/runs", edit, 202)
    assert new["id"] not in (run["id"], again["id"])
    await client.ended(new["id"])
    assert (await client.post("/v1/runs", edit, 202))["id"] == new["id"], "repeated"
    assert await texts_of(client, run) == [(edited, "bye")]
    whole = await texts_of(client, run, include="rolled_back")
    assert [text for _, text in whole] == ["hello", "hello", "bye"]
    rolled_back = body(message("hello", asked), thread_id=thread)
    problem = the_problem(
        await client.http.post("/v1/runs", json=rolled_back), 409, "message_id_conflict"
    )
    assert "was rolled back" in problem["detail"]
    mixed = body(
        message("bye", edited), message("new"), thread_id=thread, replaces={"run_id": new["id"]}
    )
    the_problem(await client.http.post("/v1/runs", json=mixed), 409, "message_id_conflict")


@pytest.mark.parametrize(
    "wrong, reason",
    [
        ({"agent_id": "quick"}, "`messages` are required"),
        ({"replaces": {}}, "either `run_id` or `message_id`"),
        ({"replaces": {"run_id": new_id(), "message_id": new_id()}}, "either `run_id`"),
        ({"replaces": {"run_id": new_id()}, "on_active": "steer"}, "can't be combined"),
        ({"replaces": {"run_id": new_id()}, "on_active": "rollback"}, "can't be combined"),
        ({"agent_id": "quick", "messages": [message("x", "no-uuid")]}, "UUID"),
    ],
)
async def test_a_wrong_request_says_what_is_wrong(
    client: Client, wrong: dict[str, Any], reason: str
) -> None:
    refused = await client.http.post("/v1/runs", json=wrong)
    assert reason in str(the_problem(refused, 422, "invalid_request")["errors"])


async def test_a_changed_message_keeps_its_id(client: Client) -> None:
    run = await client.start("quick", APPROVAL)
    await client.settled(run["id"])
    known = new_id()
    sent = {"messages": [message("more", known)], "mode": "steer"}
    path = f"/v1/threads/{run['thread_id']}"
    [input_id] = (await client.post(f"{path}/messages", sent, 202))["input_ids"]
    place, seen = f"{path}/inputs/{input_id}", {"If-Match": '"1"'}
    renamed = {"message": message("less", new_id())}
    refused = await client.http.patch(place, json=renamed, headers=seen)
    assert "keeps its id" in str(the_problem(refused, 422, "invalid_request")["errors"])
    less = {"message": message("less")}
    changed = await client.http.patch(place, json=less, headers=seen)
    assert changed.json()["message"]["id"] == known
    again = await client.http.post(f"{path}/messages", json=sent)
    the_problem(again, 409, "message_id_conflict")
    await client.post(f"/v1/runs/{run['id']}/cancel")
    await client.ended(run["id"])
