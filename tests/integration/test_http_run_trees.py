"""Families over HTTP: the children and descendants of a run, and the deletion of their threads."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import eventually
from tests.support.problems import the_problem
from tests.support.remotes import A2AServer, a2a_server
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "agents"
TOKEN = "hunter2"
RISKY = 'CALL risky {"what": "it"}'
Record = dict[str, Any]


def work(agent: str, prompt: str) -> str:
    return f"CALL agent_run_{agent} {json.dumps({'prompt': prompt})}"


@pytest.fixture(scope="module")
async def remote_server() -> AsyncIterator[A2AServer]:
    async with a2a_server(f"--token={TOKEN}") as opened:
        yield opened


@pytest.fixture(scope="module")
async def server(
    served_database: str, remote_server: A2AServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("families")
    (folder / "approved_tools.py").write_text((AGENTS / "approved_tools.py").read_text())
    file = folder / "agents.toml"
    file.write_text(
        (AGENTS / "families.toml").read_text().replace('FAR"', f'{remote_server.base}"', 1)
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FAR_TOKEN", TOKEN)
        async with serving(served_database, agents=file) as running:
            yield running


@pytest.fixture(scope="module")
async def family(client: Client) -> Record:
    """A finished boss with three child runs, one of which had a child of its own."""
    prompt = " ".join(
        [work("scout", work("digger", "dig")), work("clerk", "count"), work("scout", "look")]
    )
    run = await client.start("boss", prompt)

    async def done() -> Record | None:
        found = await client.run(run["id"])
        return found if found["status"] == "done" else None

    return await eventually(done)


async def waiting_pair(client: Client, agent: str) -> tuple[Record, Record]:
    """A boss that waits for its child, and the child, which waits for a person."""
    run = await client.start("boss", work(agent, RISKY))

    async def both_waiting() -> tuple[Record, Record] | None:
        found = await client.run(run["id"])
        children = (await client.get(f"/v1/runs/{run['id']}/children"))["items"]
        waiting = [each["status"] == "waiting" for each in (found, *children)]
        if waiting != [True, True] or not found["waiting"]["needs_decision"]:
            return None
        return await client.run(run["id"]), await client.run(children[0]["id"])

    return await eventually(both_waiting)


async def test_lists_of_tickets_and_runs_have_the_lineage(client: Client) -> None:
    boss, child = await waiting_pair(client, "digger")
    [ticket] = (await client.get("/v1/tickets", run_id=child["id"]))["items"]
    assert ticket["lineage"] == {
        "started_by": "local",
        "parent_run_id": boss["id"],
        "root_run_id": boss["id"],
        "root_agent_id": "boss",
    }
    alone = await client.settled((await client.start("digger", RISKY))["id"])
    [own] = (await client.get("/v1/tickets", run_id=alone["id"]))["items"]
    assert own["lineage"] == {
        "started_by": "local",
        "parent_run_id": None,
        "root_run_id": alone["id"],
        "root_agent_id": "digger",
    }
    await client.post(f"/v1/runs/{alone['id']}/cancel", {})
    await client.ended(alone["id"])
    again = await client.post(f"/v1/runs/{alone['id']}/retry", {}, 202)
    ids = ",".join((boss["id"], child["id"], again["id"]))
    rows = {each["id"]: each for each in (await client.get("/v1/run-summaries", ids=ids))["items"]}
    assert {id: row["child_runs"] for id, row in rows.items()} == {
        boss["id"]: 1,
        child["id"]: 0,
        again["id"]: 0,
    }
    assert rows[again["id"]]["retry_of_run_id"] == alone["id"]
    assert (rows[child["id"]]["parent_run_id"], rows[child["id"]]["retry_of_run_id"]) == (
        boss["id"],
        None,
    )


# --- waits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["digger", "clerk"], ids=["a delegate", "a background task"])
async def test_a_stream_continues_while_a_delegate_works(client: Client, agent: str) -> None:
    async with client.start_stream("boss", work(agent, "count")) as stream:
        received = await stream.rest()
    ends = [event for event in received if event["event_type"] == "run_finish"]
    assert [end["termination"]["type"] for end in ends] == ["suspended", "natural_end"]
    assert ends[0]["waiting"]["needs_decision"] is False
    assert ends[0]["waiting"]["reason"] in ("child_runs", "background_tasks")


async def test_a_stream_ends_at_the_question_of_a_child_and_continues_after_the_decision(
    client: Client,
) -> None:
    async with client.start_stream("boss", work("scout", work("digger", RISKY))) as stream:
        received = await stream.rest()
        last = stream.last_id
    asked = [event for event in received if event["event_type"] == "ticket_opened"][-1]
    assert asked["child"]["agent_id"] == asked["ticket"]["agent_id"] == "digger"
    run_id = received[0]["run_id"]
    waiting = (await client.run(run_id, wait=30))["waiting"]
    assert (waiting["reason"], waiting["needs_decision"]) == ("child_runs", True)
    answer = {"decisions": [{"ticket_id": asked["ticket"]["id"], "action": "approve"}]}
    async with client.events(f"/v1/runs/{run_id}", last_id=last) as stream:
        await client.post(f"/v1/runs/{run_id}/decisions", answer)
        continued = await stream.rest()
    [decided] = [event for event in continued if event["event_type"] == "ticket_decided"][:1]
    assert (decided["ticket_id"], decided["child"]) == (asked["ticket"]["id"], asked["child"])
    assert continued[-1]["termination"]["type"] == "natural_end"


async def test_a_start_that_waits_gets_the_answer_of_its_delegate(client: Client) -> None:
    body = start_body("boss", work("digger", "count"))
    response = await client.http.post("/v1/runs", json=body, headers={"Prefer": "wait=30"})
    assert response.status_code == 200
    assert response.json()["outcome"] == "succeeded"


# --- lists ----------------------------------------------------------------------------------------


async def test_a_run_lists_its_own_children_in_pages(client: Client, family: Record) -> None:
    path = f"/v1/runs/{family['id']}/children"
    whole = (await client.get(path))["items"]
    assert [each["agent_id"] for each in whole] == ["scout", "clerk", "scout"]
    assert {each["parent_run_id"] for each in whole} == {family["id"]}
    first = await client.get(path, limit=2)
    assert (len(first["items"]), first["has_more"]) == (2, True)
    second_page = await client.get(path, limit=2, cursor=first["next_cursor"])
    assert [*first["items"], *second_page["items"]] == whole
    filtered = (await client.get(path, agent_id="clerk"))["items"]
    assert filtered == [whole[1]]
    assert (await client.get(path, status="waiting"))["items"] == []


async def test_a_cursor_is_accepted_for_its_own_list_only(client: Client, family: Record) -> None:
    path = f"/v1/runs/{family['id']}/children"
    cursor = (await client.get(path, limit=1))["next_cursor"]
    response = await client.http.get("/v1/runs", params={"cursor": cursor})
    the_problem(response, 400, "cursor_mismatch")


async def test_children_of_an_unknown_run_are_not_found(client: Client) -> None:
    unknown = "00000000-0000-4000-8000-000000000000"
    for what in ("children", "artifacts"):
        response = await client.http.get(f"/v1/runs/{unknown}/{what}")
        the_problem(response, 404, "run_not_found")


async def test_a_whole_tree_is_found_by_its_root(client: Client, family: Record) -> None:
    found = (await client.get("/v1/runs", root_run_id=family["id"]))["items"]
    assert sorted(each["agent_id"] for each in found) == [
        "boss",
        "clerk",
        "digger",
        "scout",
        "scout",
    ]


async def test_the_threads_of_children_are_found_by_their_parents(
    client: Client, family: Record
) -> None:
    children = (await client.get(f"/v1/runs/{family['id']}/children"))["items"]
    found = (await client.get("/v1/threads", parent_thread_id=family["thread_id"]))["items"]
    assert {each["id"] for each in found} == {each["thread_id"] for each in children}


async def test_the_explanation_of_a_run_covers_its_descendants(
    client: Client, family: Record
) -> None:
    found = await client.get(f"/v1/runs/{family['id']}/explain")
    below = [(each["agent_id"], each["depth"], each["outcome"]) for each in found["below"]]
    assert below == [
        ("scout", 1, "succeeded"),
        ("clerk", 1, "succeeded"),
        ("scout", 1, "succeeded"),
        ("digger", 2, "succeeded"),
    ]


async def test_a_task_names_its_child_run(client: Client, family: Record) -> None:
    [task] = (await client.get(f"/v1/runs/{family['id']}/tasks"))["items"]
    [clerk] = (await client.get(f"/v1/runs/{family['id']}/children", agent_id="clerk"))["items"]
    assert (task["child_run_id"], task["outcome"]) == (clerk["id"], "succeeded")


# --- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["digger", "clerk"])
async def test_a_parent_shows_what_its_child_waits_for(client: Client, agent: str) -> None:
    parent, child = await waiting_pair(client, agent)
    [shown] = [each for each in parent["waiting"]["tickets"] if each["kind"] != "child"]
    [own] = child["waiting"]["tickets"]
    assert (shown["id"], shown["run_id"]) == (own["id"], child["id"])
    snapshot = await client.get(f"/v1/runs/{parent['id']}/snapshot")
    assert own["id"] in [each["id"] for each in snapshot["tickets"]]
    listed = (await client.get("/v1/tickets", run_id=child["id"]))["items"]
    assert [each["id"] for each in listed] == [own["id"]]
    answer = {"decisions": [{"ticket_id": own["id"], "action": "approve"}]}
    decided = await client.post(f"/v1/runs/{parent['id']}/decisions", answer)
    assert decided["results"][0]["status"] == "accepted"
    assert decided["run"]["id"] == child["id"]
    again = await client.post(f"/v1/runs/{child['id']}/decisions", answer)
    assert again["results"][0]["status"] == "duplicate"

    async def done() -> bool:
        return bool((await client.run(parent["id"]))["status"] == "done")

    await eventually(done)


async def test_lists_show_what_each_of_their_runs_waits_for(client: Client) -> None:
    parent, child = await waiting_pair(client, "digger")
    for path, run in (("/v1/runs", parent), (f"/v1/runs/{parent['id']}/children", child)):
        items = (await client.get(path))["items"]
        [listed] = [each for each in items if each["id"] == run["id"]]
        assert listed["waiting"]["needs_decision"] is run["waiting"]["needs_decision"] is True
        own = [each for each in run["waiting"]["tickets"] if each["run_id"] == run["id"]]
        assert listed["waiting"]["tickets"] == own != []
    await client.post(f"/v1/runs/{parent['id']}/cancel")


async def test_cancelling_a_task_over_http_cancels_its_child(client: Client) -> None:
    parent, child = await waiting_pair(client, "clerk")
    [task] = (await client.get(f"/v1/runs/{parent['id']}/tasks"))["items"]
    await client.post(f"/v1/runs/{parent['id']}/tasks/{task['id']}/cancel")

    async def is_done() -> bool:
        return bool((await client.run(child["id"]))["outcome"] == "cancelled")

    await eventually(is_done)


# --- deleted --------------------------------------------------------------------------------------


async def test_child_threads_are_deleted_or_detached_as_the_request_demands(client: Client) -> None:
    async def new_family() -> tuple[str, str]:
        run = await client.start("boss", work("digger", "dig"))
        path = f"/v1/runs/{run['id']}"

        async def done() -> bool:
            return bool((await client.get(path))["status"] == "done")

        await eventually(done)
        [child] = (await client.get(f"{path}/children"))["items"]
        return run["thread_id"], child["thread_id"]

    async def status_of(thread_id: str) -> int:
        return (await client.http.get(f"/v1/threads/{thread_id}")).status_code

    parent, child = await new_family()
    the_problem(await client.http.delete(f"/v1/threads/{parent}"), 409, "has_children")
    assert await status_of(parent) == await status_of(child) == 200
    response = await client.http.delete(f"/v1/threads/{parent}", params={"children": "detach"})
    assert response.status_code == 204
    assert [await status_of(each) for each in (parent, child)] == [404, 200]
    assert (await client.get(f"/v1/threads/{child}"))["parent_thread_id"] is None
    parent, child = await new_family()
    response = await client.http.delete(f"/v1/threads/{parent}", params={"children": "cascade"})
    assert response.status_code == 204
    assert [await status_of(each) for each in (parent, child)] == [404, 404]


async def test_a_family_with_an_open_run_is_not_deleted(client: Client) -> None:
    parent, child = await waiting_pair(client, "digger")
    path = f"/v1/threads/{parent['thread_id']}"
    response = await client.http.delete(path, params={"children": "cascade"})
    the_problem(response, 409, "has_active_run")
    await client.post(f"/v1/runs/{parent['id']}/cancel")

    async def is_done() -> bool:
        return bool((await client.run(child["id"]))["status"] == "done")

    await eventually(is_done)
    deleted = await client.http.delete(path, params={"children": "cascade"})
    assert deleted.status_code == 204


# --- remote agents --------------------------------------------------------------------------------


async def test_artifacts_of_a_remote_agent_are_listed(client: Client) -> None:
    run = await client.start("far", "make a draft")
    assert (await client.settled(run["id"]))["outcome"] == "succeeded"
    page = await client.get(f"/v1/runs/{run['id']}/artifacts")
    assert [(each["name"], each["media_type"], each["content"]) for each in page["items"]] == [
        ("draft", "text/plain", "a draft"),
        ("facts", "application/json", {"n": 1.0}),
        ("dot.png", "image/png", "iVBORw=="),
    ]
    addresses = [each["content_url"] for each in page["items"]]
    contents = [await client.http.get(address) for address in addresses]
    assert [each.content for each in contents] == [b"a draft", b'{"n":1}', b"\x89PNG"]
    assert [each.headers["content-type"].partition(";")[0] for each in contents] == [
        *("text/plain", "application/json", "application/octet-stream")
    ]
    assert [each["size"] for each in page["items"]] == [7, 7, 4]
    await client.http.delete(addresses[0].removesuffix("/content"))
    left = (await client.get(f"/v1/runs/{run['id']}/artifacts"))["items"]
    assert (left[0]["content"], left[0]["content_url"]) == ("a draft", None)


async def test_a_run_without_artifacts_has_an_empty_list(client: Client, family: Record) -> None:
    page = await client.get(f"/v1/runs/{family['id']}/artifacts")
    assert (page["items"], page["has_more"]) == ([], False)


@pytest.mark.parametrize(
    "more, feature",
    [
        ({"overrides": {"temperature": 0.5}}, "overrides"),
        (
            {"frontend_tools": [{"name": "look", "description": "", "parameters": {}}]},
            "frontend_tools",
        ),
    ],
)
async def test_a_start_beyond_a_remote_agents_capabilities_is_refused_without_a_row(
    client: Client, more: Record, feature: str
) -> None:
    run_id = "00000000-0000-4000-8000-00000000000a"
    body = {
        "agent_id": "far",
        "run_id": run_id,
        "messages": [{"role": "user", "content": "hello"}],
        **more,
    }
    problem = the_problem(await client.http.post("/v1/runs", json=body), 422, "backend_unsupported")
    assert problem["detail"].startswith(f"agent 'far' backend does not support: {feature}.")
    assert (await client.http.get(f"/v1/runs/{run_id}")).status_code == 404


async def test_agents_list_their_delegates_and_no_secret(
    client: Client, remote_server: A2AServer
) -> None:
    response = await client.http.get("/v1/agents")
    agents = {each["id"]: each for each in response.json()["items"]}
    assert agents["boss"]["delegates"] == ["scout", "clerk", "digger"]
    assert agents["boss"]["background"] == ["agent_run_clerk"]
    assert agents["scout"]["handoffs"] == ["clerk"]
    assert agents["boss"]["endpoint"] is None
    assert agents["far"]["endpoint"] == {"backend": "a2a", "target": None}
    assert agents["far"]["model"] == ""
    assert all(agents["boss"]["capabilities"].values())
    assert agents["far"]["capabilities"] == {
        "cancellation": "remote_abort",
        "decisions": True,
        "overrides": False,
        "frontend_tools": False,
        "limits": False,
        "pause": False,
        "structured_output": False,
        "replaces": False,
        "continuation": "remote_state",
        "waits": "input_and_auth",
        "transcript": "incremental_user_messages_with_remote_state",
        "output": "text_and_artifacts",
    }
    for secret in (TOKEN, "FAR_TOKEN", remote_server.base):
        assert secret not in response.text
