"""Remembered rules over HTTP: made by a decision, listed, revoked; each tenant has its own."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import AGENTS
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    holders = {
        "ann": Holder("acme"),
        "eve": Holder("acme", ("runs:read",)),
        "bob": Holder("globex"),
    }
    return write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)


@pytest.fixture(scope="module")
async def server(served_database: str, keys: Path) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS, api_keys_file=keys) as running:
        yield running


@pytest.fixture
async def ann(server: Server) -> AsyncIterator[Client]:
    async with server.client("ann") as client:
        yield client


@pytest.fixture
async def bob(server: Server) -> AsyncIterator[Client]:
    async with server.client("bob") as client:
        yield client


async def waiting(client: Client, **more: Any) -> dict[str, Any]:
    return await client.settled((await client.start("quick", APPROVAL, **more))["id"])


async def listed(client: Client, **query: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await client.get("/v1/rules", **query))["items"]
    return items


async def test_a_decision_makes_a_rule_that_is_listed_and_revoked(ann: Client, bob: Client) -> None:
    run = await waiting(ann)
    remember = {"scope": "thread", "match": "arguments"}
    decided = await ann.decide(run, "approve", reason="always fine", remember=remember)
    [result] = decided["results"]
    await ann.settled(run["id"])
    [rule] = await listed(ann, scope="thread", scope_id=run["thread_id"])
    assert rule["id"] == result["rule_id"]
    assert {name: rule[name] for name in ("pattern", "arguments", "behavior", "reason")} == {
        "pattern": "risky",
        "arguments": {"what": "it"},
        "behavior": "allow",
        "reason": "always fine",
    }
    assert (rule["agent_id"], rule["created_by"]) == ("quick", "ann")
    assert rule["ticket_id"] == run["waiting"]["tickets"][0]["id"]

    repeated = await waiting(ann, thread_id=run["thread_id"])
    assert repeated["outcome"] == "succeeded", "no ticket was opened"
    same = await ann.decide(run, "approve")
    assert (same["results"][0]["status"], same["results"][0]["rule_id"]) == ("duplicate", None)

    assert await listed(bob) == []
    the_problem(await bob.http.delete(f"/v1/rules/{rule['id']}"), 404, "rule_not_found")
    assert (await ann.http.delete(f"/v1/rules/{rule['id']}")).status_code == 204
    assert (await ann.http.delete(f"/v1/rules/{rule['id']}")).status_code == 204
    assert await listed(ann, scope_id=run["thread_id"]) == []
    [revoked] = await listed(ann, scope_id=run["thread_id"], include="revoked")
    assert revoked["revoked_by"] == "ann"
    assert (await waiting(ann, thread_id=run["thread_id"]))["status"] == "waiting"


async def test_a_remembered_tool_name_covers_every_call_of_the_tool(ann: Client) -> None:
    run = await waiting(ann)
    await ann.decide(run, "reject", remember="run")
    [rule] = await listed(ann, scope="run", scope_id=run["id"])
    assert (rule["behavior"], rule["arguments"], rule["scope_id"]) == ("deny", None, run["id"])


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "respond", "result": 1, "remember": "run"},
        {"action": "cancel", "remember": "run"},
        {"action": "edit", "arguments": {"what": "x"}, "remember": "run"},
        {"action": "approve", "remember": "for ever"},
        {"action": "approve", "remember": {"match": "tool"}},
        {"action": "approve", "remember": {"scope": "run", "match": "all"}},
    ],
)
async def test_decisions_with_an_invalid_remember_field_are_refused(
    ann: Client, answer: dict[str, Any]
) -> None:
    run = await waiting(ann)
    body = {"decisions": [{"ticket_id": run["waiting"]["tickets"][0]["id"], **answer}]}
    response = await ann.http.post(f"/v1/runs/{run['id']}/decisions", json=body)
    the_problem(response, 422, "invalid_request")
    assert await listed(ann, scope_id=run["id"]) == []


async def test_revoking_a_rule_needs_the_scope_to_decide(server: Server, ann: Client) -> None:
    run = await waiting(ann)
    await ann.decide(run, "approve", remember="run")
    async with server.client("eve") as viewer:
        [rule] = await listed(viewer, scope_id=run["id"])
        the_problem(await viewer.http.delete(f"/v1/rules/{rule['id']}"), 403, "scope_missing")
