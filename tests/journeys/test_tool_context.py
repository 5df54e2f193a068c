"""Tools and plugins know for whom they run, also in tasks, in delegates and after a takeover."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import eventually
from tests.support.keys import Holder, write_keys
from tests.support.servers import Server, serving, working
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "tool_context" / "agents.toml"
SECRET = "c-7-of-the-context"


@pytest.fixture(scope="module")
async def server(
    shared_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    """One process that serves and executes, with keys."""
    keys = write_keys(
        tmp_path_factory.mktemp("keys") / "keys.toml",
        {"ann": Holder("acme"), "web": Holder("acme", [*Holder("").scopes, "runs:context"])},
    )
    async with serving(shared_database_url, agents=AGENTS, api_keys_file=keys) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client("ann") as ann:
        yield ann


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def prompt(tool: str, **arguments: object) -> str:
    return f"CALL {tool} {json.dumps(arguments)}"


async def test_tools_and_hooks_know_their_run(client: Client, tmp_path: Path) -> None:
    calls, hooks = tmp_path / "calls", tmp_path / "hooks"
    metadata = {"customer": "c-7", "hooks": str(hooks)}
    started = await client.start("clerk", prompt("who_am_i", file=str(calls)), metadata=metadata)
    run = await client.ended(started["id"])
    expected = {
        "id": run["id"],
        "thread_id": run["thread_id"],
        "thread_key": None,
        "agent_id": "clerk",
        "tenant": "acme",
        "started_by": "ann",
        "attempt": 1,
        "metadata": metadata,
        "context": {},
        "parent_run_id": None,
        "parent_call_id": None,
    }
    [call] = lines(calls)
    assert call["run"] == expected
    assert [(line["phase"], line["run"]) for line in lines(hooks)] == [
        ("run_start", expected),
        ("tool_gate", expected),
        ("run_end", expected),
    ]


async def test_a_delegates_tool_knows_who_started_the_work(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "calls"
    task = prompt("who_am_i", file=str(file))
    started = await client.start("clerk", prompt("agent_run_scout", prompt=task))

    async def called() -> dict[str, Any] | None:
        return next(iter(lines(file)), None)

    child = (await eventually(called))["run"]
    assert (child["agent_id"], child["started_by"], child["tenant"]) == ("scout", "ann", "acme")
    assert child["parent_run_id"] == started["id"] != child["id"]
    assert child["thread_id"] != started["thread_id"]


async def test_a_background_task_knows_its_run(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "calls"
    started = await client.start(
        "patient", prompt("who_am_i", file=str(file)), metadata={"order": 3}
    )

    async def called() -> dict[str, Any] | None:
        return next(iter(lines(file)), None)

    run = (await eventually(called))["run"]
    assert (run["id"], run["thread_id"]) == (started["id"], started["thread_id"])
    assert (run["metadata"], run["started_by"], run["tenant"]) == ({"order": 3}, "ann", "acme")


async def test_after_a_takeover_the_tool_knows_the_same_run(
    database_url: str, tmp_path: Path
) -> None:
    file, opened = tmp_path / "calls", tmp_path / "calls.open"
    async with AsyncExitStack() as stack:
        keys = write_keys(tmp_path / "keys.toml", {"ann": Holder("taken", ["admin"])})
        url = database_url
        api = await stack.enter_async_context(
            serving(url, agents=AGENTS, api_keys_file=keys, role="api")
        )
        ann = await stack.enter_async_context(api.client("ann"))
        first = await stack.enter_async_context(working(url, agents=AGENTS))
        second = await stack.enter_async_context(working(url, agents=AGENTS))
        workers = {first.pid: first, second.pid: second}
        started = await ann.start(
            "clerk",
            prompt("who_am_i", file=str(file), hold=True),
            metadata={"order": 4},
            context={"customer": SECRET},
        )

        async def called(times: int) -> list[dict[str, Any]]:
            async def enough() -> list[dict[str, Any]] | None:
                found = lines(file)
                return found if len(found) >= times else None

            return await eventually(enough)

        [before] = await called(1)
        workers[before["pid"]].kill()
        _, after = await called(2)
        opened.touch()
        await ann.ended(started["id"])
    assert after["pid"] != before["pid"]
    assert (before["run"]["attempt"], after["run"]["attempt"]) == (1, 2)
    assert after["run"] | {"attempt": 1} == before["run"]
    assert after["run"]["metadata"] == {"order": 4}
    assert after["run"]["context"] == {"customer": SECRET}


async def shown(client: Client, run: dict[str, Any]) -> str:
    """All that a client can read about a run."""
    run_id, thread_id = run["id"], run["thread_id"]
    paths = (
        f"/v1/runs/{run_id}",
        "/v1/runs",
        f"/v1/runs/{run_id}/events",
        f"/v1/runs/{run_id}/snapshot",
        f"/v1/runs/{run_id}/explain",
        f"/v1/runs/{run_id}/audit",
        f"/v1/runs/{run_id}/children",
        f"/v1/threads/{thread_id}",
        f"/v1/threads/{thread_id}/messages",
        f"/v1/threads/{thread_id}/runs",
        f"/v1/threads/{thread_id}/events",
    )
    answers = [await client.http.get(path) for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    return "".join(answer.text for answer in answers)


async def test_a_context_reaches_tools_hooks_and_delegates_and_is_not_shown(
    server: Server, client: Client, tmp_path: Path
) -> None:
    calls, hooks = tmp_path / "calls", tmp_path / "hooks"
    context = {"customer": SECRET, "limits": [1, 2]}
    task = prompt("note", file=str(calls))
    async with server.client("web") as web:
        started = await web.start(
            "clerk",
            prompt("agent_run_scout", prompt=task),
            context=context,
            metadata={"hooks": str(hooks)},
        )

        async def ended() -> dict[str, Any] | None:
            run = await web.run(started["id"])
            return run if run["status"] == "done" else None

        run = await eventually(ended)
        [child] = (await web.get(f"/v1/runs/{run['id']}/children"))["items"]
        texts = [
            json.dumps(started),
            *[await shown(reader, one) for reader in (web, client) for one in (run, child)],
        ]
    [call] = lines(calls)
    assert call["run"]["context"] == context
    assert call["run"]["id"] == child["id"]
    seen = lines(hooks)
    assert {line["phase"] for line in seen} == {"run_start", "tool_gate", "run_end"}
    assert [line["run"]["context"] for line in seen] == [context] * len(seen)
    assert len(texts) == 5
    assert not [text for text in texts if SECRET in text]


async def test_a_retry_keeps_the_context_and_a_run_on_a_fork_has_none(
    server: Server, client: Client, tmp_path: Path
) -> None:
    file, opened = tmp_path / "calls", tmp_path / "calls.open"
    context, hooks = {"customer": SECRET}, tmp_path / "hooks"
    async with server.client("web") as web:
        first = await web.start(
            "clerk",
            prompt("who_am_i", file=str(file), hold=True),
            context=context,
            metadata={"hooks": str(hooks)},
        )

        async def called() -> bool:
            return bool(lines(file))

        await eventually(called)
        await web.post(f"/v1/runs/{first['id']}/cancel", {}, 202)
        opened.touch()
        assert (await web.ended(first["id"]))["outcome"] == "cancelled"
    # The key that retries needn't have the scope.
    retry = await client.post(f"/v1/runs/{first['id']}/retry", {}, 202)
    await client.ended(retry["id"])
    of_retry = [line["run"] for line in lines(hooks) if line["run"]["id"] == retry["id"]]
    assert of_retry
    assert [run["context"] for run in of_retry] == [context] * len(of_retry)
    fork = await client.post(f"/v1/threads/{first['thread_id']}/fork", {}, 201)
    other = await client.start("clerk", prompt("who_am_i", file=str(file)), thread_id=fork["id"])
    await client.ended(other["id"])
    last = lines(file)[-1]["run"]
    assert (last["id"], last["context"]) == (other["id"], {})


async def test_a_context_is_bounded_and_not_combined_with_steer(server: Server) -> None:
    async with server.client("web") as web:
        fitting = {"x": "ä" * 8_188}
        await web.start("clerk", "Hi.", context=fitting)
        for more, sentence in (
            ({"context": {"x": "ä" * 8_189}}, "`context` has 16386 bytes of JSON"),
            ({"context": {"a": 1}, "on_active": "steer"}, "can't be combined with `steer`"),
            ({"context": ["c-7"]}, "valid dictionary"),
        ):
            response = await web.http.post("/v1/runs", json=start_body("clerk", "Hi.", **more))
            assert response.status_code == 422
            assert sentence in response.text


async def test_an_approval_inside_a_tool_outlives_a_kill_before_it_resumes(
    database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "paid"
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(serving(database_url, agents=AGENTS, role="api"))
        client = await stack.enter_async_context(api.client())
        first = await stack.enter_async_context(working(database_url, agents=AGENTS))
        call = prompt("refund", amount=80, file=str(file))
        run = await client.settled((await client.start("cashier", call))["id"])
        [ticket] = run["waiting"]["tickets"]
        assert (ticket["kind"], ticket["message"]) == ("approval", "Refund 80?")
        first.kill()
        await first.gone()
        await client.decide(run, "approve")
        second = await stack.enter_async_context(working(database_url, agents=AGENTS))

        async def ended() -> dict[str, Any] | None:
            now = await client.run(run["id"])
            return now if now["status"] == "done" else None

        assert (await eventually(ended))["outcome"] == "succeeded"
        [paid] = lines(file)
        assert (paid["amount"], paid["pid"]) == (80, second.pid)
        messages = await client.http.get(f"/v1/threads/{run['thread_id']}/messages")
    assert "refunded 80, as local agreed" in messages.text
