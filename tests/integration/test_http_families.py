"""Families over HTTP: the children of a run, all that is below it, and what becomes of their threads."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import eventually
from tests.support.problems import the_problem
from tests.support.remotes import A2AServer, a2a_server
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "agents"
TOKEN = "hunter2"
RISKY = 'CALL risky {"what": "it"}'
Record = dict[str, Any]


def work(agent: str, prompt: str) -> str:
    return f"CALL agent_run_{agent} {json.dumps({'prompt': prompt})}"


@pytest.fixture(scope="module")
async def far() -> AsyncIterator[A2AServer]:
    async with a2a_server(f"--token={TOKEN}") as opened:
        yield opened


@pytest.fixture(scope="module")
async def server(
    served_database: str, far: A2AServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("families")
    (folder / "approved_tools.py").write_text((AGENTS / "approved_tools.py").read_text())
    file = folder / "agents.toml"
    file.write_text((AGENTS / "families.toml").read_text().replace('FAR"', f'{far.base}"', 1))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FAR_TOKEN", TOKEN)
        async with serving(served_database, agents=file) as running:
            yield running


@pytest.fixture(scope="module")
async def family(client: Client) -> Record:
    """A boss that has given work to three others, one of whom had work done himself."""
    prompt = " ".join(
        [work("scout", work("digger", "dig")), work("clerk", "count"), work("scout", "look")]
    )
    run = await client.start("boss", prompt)

    async def done() -> Record | None:
        found = await client.run(run["run_id"])
        return found if found["status"] == "done" else None

    return await eventually(done)


async def asked_below(client: Client, agent: str) -> tuple[Record, Record]:
    """A boss that waits for a child that waits for a person; both."""
    run = await client.start("boss", work(agent, RISKY))

    async def asked() -> tuple[Record, Record] | None:
        found = await client.run(run["run_id"])
        children = (await client.get(f"/v1/runs/{run['run_id']}/children"))["items"]
        rests = [each["status"] == "waiting" for each in (found, *children)]
        if rests != [True, True]:
            return None
        return await client.run(run["run_id"]), await client.run(children[0]["run_id"])

    return await eventually(asked)


# --- lists ----------------------------------------------------------------------------------------


async def test_a_run_lists_its_own_children_in_pages(client: Client, family: Record) -> None:
    path = f"/v1/runs/{family['run_id']}/children"
    whole = (await client.get(path))["items"]
    assert [each["agent_id"] for each in whole] == ["scout", "clerk", "scout"]
    assert {each["parent_run_id"] for each in whole} == {family["run_id"]}
    first = await client.get(path, limit=2)
    assert (len(first["items"]), first["has_more"]) == (2, True)
    rest = await client.get(path, limit=2, cursor=first["next_cursor"])
    assert [*first["items"], *rest["items"]] == whole
    chosen = (await client.get(path, agent_id="clerk"))["items"]
    assert chosen == [whole[1]]
    assert (await client.get(path, status="waiting"))["items"] == []


async def test_a_cursor_is_good_for_one_familys_list(client: Client, family: Record) -> None:
    path = f"/v1/runs/{family['run_id']}/children"
    cursor = (await client.get(path, limit=1))["next_cursor"]
    response = await client.http.get("/v1/runs", params={"cursor": cursor})
    the_problem(response, 400, "cursor_mismatch")


async def test_children_of_nobody_arent_found(client: Client) -> None:
    unknown = "00000000-0000-4000-8000-000000000000"
    for what in ("children", "artifacts"):
        response = await client.http.get(f"/v1/runs/{unknown}/{what}")
        the_problem(response, 404, "run_not_found")


async def test_a_whole_tree_is_found_by_its_root(client: Client, family: Record) -> None:
    found = (await client.get("/v1/runs", root_run_id=family["run_id"]))["items"]
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
    children = (await client.get(f"/v1/runs/{family['run_id']}/children"))["items"]
    found = (await client.get("/v1/threads", parent_thread_id=family["thread_id"]))["items"]
    assert {each["thread_id"] for each in found} == {each["thread_id"] for each in children}


async def test_what_is_below_a_run_is_explained_with_it(client: Client, family: Record) -> None:
    found = await client.get(f"/v1/runs/{family['run_id']}/explain")
    below = [(each["agent_id"], each["depth"], each["outcome"]) for each in found["below"]]
    assert below == [
        ("scout", 1, "succeeded"),
        ("clerk", 1, "succeeded"),
        ("scout", 1, "succeeded"),
        ("digger", 2, "succeeded"),
    ]


async def test_a_task_names_the_run_that_it_is(client: Client, family: Record) -> None:
    [task] = (await client.get(f"/v1/runs/{family['run_id']}/tasks"))["items"]
    [clerk] = (await client.get(f"/v1/runs/{family['run_id']}/children", agent_id="clerk"))["items"]
    assert (task["child_run_id"], task["status"]) == (clerk["run_id"], "completed")


# --- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["digger", "clerk"])
async def test_what_a_child_waits_for_shows_on_its_parent(client: Client, agent: str) -> None:
    parent, child = await asked_below(client, agent)
    [shown] = parent["waiting"]["tickets_of_children"]
    [own] = child["waiting"]["tickets"]
    assert (shown["id"], shown["run_id"]) == (own["id"], child["run_id"])
    listed = (await client.get("/v1/tickets", run_id=child["run_id"]))["items"]
    assert [each["id"] for each in listed] == [own["id"]]
    answer = {"decisions": [{"ticket_id": own["id"], "action": "approve"}]}
    refused = await client.http.post(f"/v1/runs/{parent['run_id']}/decisions", json=answer)
    assert "at that run" in the_problem(refused, 404, "ticket_not_found")["detail"]
    await client.decide(child, "approve")

    async def done() -> bool:
        return bool((await client.run(parent["run_id"]))["status"] == "done")

    await eventually(done)


async def test_lists_show_what_each_of_their_runs_waits_for(client: Client) -> None:
    parent, child = await asked_below(client, "digger")
    for path, run in (("/v1/runs", parent), (f"/v1/runs/{parent['run_id']}/children", child)):
        items = (await client.get(path))["items"]
        [listed] = [each for each in items if each["run_id"] == run["run_id"]]
        for key in ("ticket_ids", "tickets"):
            assert listed["waiting"][key] == run["waiting"][key] != []
    await client.post(f"/v1/runs/{parent['run_id']}/cancel")


async def test_a_task_that_is_cancelled_over_http_takes_its_child_along(client: Client) -> None:
    parent, child = await asked_below(client, "clerk")
    [task] = (await client.get(f"/v1/runs/{parent['run_id']}/tasks"))["items"]
    await client.post(f"/v1/runs/{parent['run_id']}/tasks/{task['id']}/cancel")

    async def over() -> bool:
        return bool((await client.run(child["run_id"]))["outcome"] == "cancelled")

    await eventually(over)


# --- deleted --------------------------------------------------------------------------------------


async def test_threads_of_children_go_as_whoever_deletes_says(client: Client) -> None:
    async def made() -> tuple[str, str]:
        run = await client.start("boss", work("digger", "dig"))
        path = f"/v1/runs/{run['run_id']}"

        async def done() -> bool:
            return bool((await client.get(path))["status"] == "done")

        await eventually(done)
        [child] = (await client.get(f"{path}/children"))["items"]
        return run["thread_id"], child["thread_id"]

    async def status_of(thread_id: str) -> int:
        return (await client.http.get(f"/v1/threads/{thread_id}")).status_code

    parent, child = await made()
    the_problem(await client.http.delete(f"/v1/threads/{parent}"), 409, "has_children")
    assert await status_of(parent) == await status_of(child) == 200
    gone = await client.http.delete(f"/v1/threads/{parent}", params={"children": "detach"})
    assert gone.status_code == 204
    assert [await status_of(each) for each in (parent, child)] == [404, 200]
    assert (await client.get(f"/v1/threads/{child}"))["parent_thread_id"] is None
    parent, child = await made()
    gone = await client.http.delete(f"/v1/threads/{parent}", params={"children": "cascade"})
    assert gone.status_code == 204
    assert [await status_of(each) for each in (parent, child)] == [404, 404]


async def test_a_family_at_work_isnt_deleted(client: Client) -> None:
    parent, child = await asked_below(client, "digger")
    path = f"/v1/threads/{parent['thread_id']}"
    response = await client.http.delete(path, params={"children": "cascade"})
    the_problem(response, 409, "has_active_run")
    await client.post(f"/v1/runs/{parent['run_id']}/cancel")

    async def over() -> bool:
        return bool((await client.run(child["run_id"]))["status"] == "done")

    await eventually(over)
    gone = await client.http.delete(path, params={"children": "cascade"})
    assert gone.status_code == 204


# --- elsewhere ------------------------------------------------------------------------------------


async def test_what_a_remote_agent_makes_is_listed(client: Client) -> None:
    run = await client.start("far", "make a draft")
    assert (await client.settled(run["run_id"]))["outcome"] == "succeeded"
    page = await client.get(f"/v1/runs/{run['run_id']}/artifacts")
    assert [(each["name"], each["media_type"], each["content"]) for each in page["items"]] == [
        ("draft", "text/plain", "a draft"),
        ("facts", "application/json", {"n": 1.0}),
        ("dot.png", "image/png", "iVBORw=="),
    ]


async def test_a_run_without_artifacts_has_an_empty_list(client: Client, family: Record) -> None:
    page = await client.get(f"/v1/runs/{family['run_id']}/artifacts")
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
async def test_what_a_remote_agent_cant_do_is_refused_before_anything_is_written(
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


async def test_agents_tell_whom_they_work_with_and_no_secret(
    client: Client, far: A2AServer
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
        "continuation": "remote_state",
        "waits": "input_and_auth",
        "transcript": "incremental_user_messages_with_remote_state",
        "output": "text_and_artifacts",
    }
    for secret in (TOKEN, "FAR_TOKEN", far.base):
        assert secret not in response.text
