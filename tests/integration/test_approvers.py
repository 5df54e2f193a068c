"""Who may approve a call: scopes, four eyes, several approvers; and what the audit stores of it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.integration.conftest import AGENTS
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "it"}'
APPROVERS = AGENTS.with_name("approvers.toml")
ALL = ("runs:read", "runs:write", "decisions:write")
People: TypeAlias = dict[str, Client]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    holders = {name: Holder("acme", ALL) for name in ("ann", "bob", "cleo")}
    holders["dan"] = Holder("acme", (*ALL, "approve:money"))
    holders["zoe"] = Holder("globex", ALL)
    return write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)


@pytest.fixture(scope="module")
async def server(served_database: str, keys: Path) -> AsyncIterator[Server]:
    async with serving(served_database, agents=APPROVERS, api_keys_file=keys) as running:
        yield running


@pytest.fixture
async def people(server: Server) -> AsyncIterator[People]:
    clients = {name: server.client(name) for name in ("ann", "bob", "cleo", "dan", "zoe")}
    yield clients
    for client in clients.values():
        await client.http.aclose()


async def waiting(client: Client, agent: str, prompt: str = APPROVAL) -> dict[str, Any]:
    return await client.settled((await client.start(agent, prompt))["id"])


def ticket_in(run: dict[str, Any]) -> str:
    return str(run["waiting"]["tickets"][0]["id"])


async def refused(
    client: Client,
    run: dict[str, Any],
    status: int,
    code: str,
    action: str = "approve",
    **more: Any,
) -> dict[str, Any]:
    body = {"decisions": [{"ticket_id": ticket_in(run), "action": action, **more}]}
    response = await client.http.post(f"/v1/runs/{run['id']}/decisions", json=body)
    return the_problem(response, status, code)


async def only_mine(client: Client) -> list[str]:
    page = await client.get("/v1/tickets", assignee="me", limit=200)
    return [ticket["id"] for ticket in page["items"]]


# --- scope and four eyes --------------------------------------------------------------------------


async def test_a_ticket_says_who_may_decide_it_and_who_has_voted(people: People) -> None:
    run = await waiting(people["dan"], "careful")
    path = f"/v1/tickets/{ticket_in(run)}"
    own = (await people["dan"].get(path))["may_decide"]
    assert (own["allowed"], "started the run" in own["reason"]) == (False, True)
    lacking = (await people["ann"].get(path))["may_decide"]
    assert (lacking["allowed"], "approve:money" in lacking["reason"]) == (False, True)
    run = await waiting(people["dan"], "board")
    path = f"/v1/tickets/{ticket_in(run)}"
    before = await people["bob"].get(path)
    assert (before["may_decide"], before["votes"]) == ({"allowed": True, "reason": None}, [])
    await people["ann"].decide(run, "approve", reason="It is paid.")
    [vote] = (await people["bob"].get(path))["votes"]
    assert (vote["decided_by"], vote["action"], vote["reason"]) == ("ann", "approve", "It is paid.")


async def test_a_list_has_the_votes_and_whether_the_reader_may_decide(people: People) -> None:
    board = await waiting(people["dan"], "board")
    careful = await waiting(people["dan"], "careful")
    await people["ann"].decide(board, "approve", reason="It is paid.")
    listed = {each["id"]: each for each in (await people["bob"].get("/v1/tickets"))["items"]}
    voted, blocked = listed[ticket_in(board)], listed[ticket_in(careful)]
    [vote] = voted["votes"]
    assert (vote["decided_by"], vote["action"], vote["reason"]) == ("ann", "approve", "It is paid.")
    assert voted["approvers"]["quorum"] == 2
    assert voted["may_decide"] == {"allowed": True, "reason": None}
    assert (blocked["votes"], blocked["may_decide"]["allowed"]) == ([], False)
    assert "approve:money" in blocked["may_decide"]["reason"]
    for each in (voted, blocked):
        shown = await people["bob"].get(f"/v1/tickets/{each['id']}")
        assert {name: shown[name] for name in each} == each
    await people["bob"].decide(board, "approve")
    decided = (await people["bob"].get("/v1/tickets", run_id=board["id"]))["items"]
    assert [[vote["decided_by"] for vote in each["votes"]] for each in decided] == [["ann"]]


async def test_a_refused_decision_names_the_rule_that_failed(people: People) -> None:
    run = await waiting(people["dan"], "careful")
    assert (await refused(people["bob"], run, 403, "approver_not_allowed"))["rule"] == "scope"
    own = await refused(people["dan"], run, 403, "approver_not_allowed", "reject")
    assert own["rule"] == "not_starter"
    assert (await people["dan"].run(run["id"]))["status"] == "waiting"


async def test_an_approver_who_meets_all_rules_can_decide(people: People) -> None:
    run = await waiting(people["ann"], "careful")
    ticket_id = ticket_in(run)
    shown = await people["ann"].get(f"/v1/tickets/{ticket_id}")
    assert shown["approvers"] == {"scope": "approve:money", "not_starter": True, "quorum": 1}
    assert ticket_id in await only_mine(people["dan"])
    assert ticket_id not in await only_mine(people["bob"]) + await only_mine(people["ann"])
    decided = await people["dan"].decide(run, "approve")
    assert decided["results"][0]["votes_missing"] == 0
    assert (await people["ann"].settled(run["id"]))["outcome"] == "succeeded"


async def test_a_tool_without_an_approver_rule_takes_any_decider(people: People) -> None:
    run = await waiting(people["ann"], "careful", 'CALL add {"a": 1, "b": 2}')
    assert (await people["ann"].get(f"/v1/tickets/{ticket_in(run)}"))["approvers"] is None
    await people["ann"].decide(run, "approve")


# --- several people -------------------------------------------------------------------------------


async def test_a_ticket_with_several_approvers_needs_all_of_them(people: People) -> None:
    run = await waiting(people["ann"], "board")
    first = await people["bob"].decide(run, "approve", reason="I agree.")
    [vote] = first["results"]
    assert (vote["status"], vote["votes_missing"]) == ("accepted", 1)
    assert [ticket["id"] for ticket in first["open_tickets"]] == [ticket_in(run)]
    assert (await people["ann"].run(run["id"]))["status"] == "waiting"
    assert ticket_in(run) not in await only_mine(people["bob"])
    assert ticket_in(run) in await only_mine(people["cleo"])

    again = await people["bob"].decide(run, "approve")
    assert again["results"][0]["status"] == "duplicate"
    assert again["results"][0]["votes_missing"] == 1, "one person counts once"
    other_id = await refused(people["bob"], run, 409, "already_voted", decision_id="another")
    assert other_id["vote"]["decided_by"] == "bob"
    await refused(people["bob"], run, 409, "already_voted", "edit", arguments={"what": "more"})

    second = await people["cleo"].decide(run, "approve")
    assert second["results"][0]["votes_missing"] == 0
    assert (await people["ann"].settled(run["id"]))["outcome"] == "succeeded"
    late = await people["bob"].decide(run, "approve")
    assert (late["results"][0]["status"], late["results"][0]["votes_missing"]) == ("duplicate", 0)
    assert late["results"][0]["decision_id"] == vote["decision_id"]


async def test_votes_with_different_answers_are_counted_apart(people: People) -> None:
    run = await waiting(people["ann"], "board")
    await people["bob"].decide(run, "edit", arguments={"what": "less"})
    other = await people["cleo"].decide(run, "edit", arguments={"what": "more"})
    assert other["results"][0]["votes_missing"] == 1
    last = await people["dan"].decide(run, "edit", arguments={"what": "less"})
    assert last["results"][0]["votes_missing"] == 0
    await people["ann"].settled(run["id"])
    audit = await people["ann"].get(f"/v1/runs/{run['id']}/audit")
    assert audit["items"][0]["executed"]["executed_arguments"] == {"what": "less"}


async def test_one_rejection_is_enough(people: People) -> None:
    run = await waiting(people["ann"], "board")
    await people["bob"].decide(run, "approve")
    decided = await people["bob"].decide(run, "reject", reason="On second thoughts, no.")
    assert decided["results"][0]["votes_missing"] == 0
    await refused(people["cleo"], run, 409, "ticket_already_decided")


async def test_a_decision_id_of_another_answer_is_refused(people: People) -> None:
    run = await waiting(people["ann"], "board")
    await people["bob"].decide(run, "approve", decision_id="mine")
    await refused(people["cleo"], run, 409, "decision_id_conflict", decision_id="mine")
    await refused(people["bob"], run, 409, "decision_id_conflict", "reject", decision_id="mine")
    await refused(people["bob"], run, 422, "invalid_request", decision_id="refused:mine")


# --- audit ----------------------------------------------------------------------------------------


async def test_the_audit_links_a_block_its_decision_and_the_execution(people: People) -> None:
    run = await waiting(people["ann"], "careful")
    await refused(people["bob"], run, 403, "approver_not_allowed")
    await refused(people["bob"], run, 403, "approver_not_allowed")
    await refused(people["dan"], run, 412, "args_digest_mismatch", args_digest="sha256:0")
    await people["dan"].decide(run, "approve", reason="Checked.")
    await people["ann"].settled(run["id"])
    await refused(people["dan"], run, 409, "ticket_already_decided", "reject")

    [case] = (await people["ann"].get(f"/v1/runs/{run['id']}/audit"))["items"]
    assert case["blocked"]["id"] == ticket_in(run)
    assert [
        (one["decided_by"], one["effect"], one["refusal"], one["action"])
        for one in case["decisions"]
    ] == [
        ("bob", "refused", "approver_not_allowed", "approve"),
        ("dan", "refused", "args_digest_mismatch", "approve"),
        ("dan", "decided", None, "approve"),
        ("dan", "refused", "ticket_already_decided", "reject"),
    ]
    executed = case["executed"]
    assert (executed["outcome"], executed["executed_arguments"]) == ("succeeded", {"what": "it"})
    log = await people["ann"].log(f"/v1/runs/{run['id']}")
    published_event = next(event for event in log if event["seq"] == executed["event_id"])
    assert (published_event["event_type"], published_event["result"]) == (
        "tool_call_resumed",
        executed["result"],
    )
    assert executed["at"] == published_event["ts"]


@pytest.mark.parametrize(
    "action, more, outcome",
    [
        ("reject", {"reason": "no"}, "rejected"),
        ("cancel", {}, "cancelled"),
        ("respond", {"result": 7}, "answered"),
    ],
)
async def test_the_audit_gives_the_reason_why_a_call_did_not_run(
    people: People, action: str, more: dict[str, Any], outcome: str
) -> None:
    run = await waiting(people["ann"], "careful", 'CALL add {"a": 1, "b": 2}')
    await people["bob"].decide(run, action, **more)
    await people["ann"].settled(run["id"])
    [case] = (await people["ann"].get(f"/v1/runs/{run['id']}/audit"))["items"]
    assert (case["executed"]["outcome"], case["executed"]["executed_arguments"]) == (outcome, None)


async def lines(client: Client, **params: str) -> list[dict[str, Any]]:
    response = await client.http.get("/v1/audit", params=params)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


async def test_adjoining_periods_export_each_record_once(people: People) -> None:
    ann = people["ann"]
    run = await waiting(ann, "board")
    await people["bob"].decide(run, "approve")
    await people["cleo"].decide(run, "approve")
    await ann.settled(run["id"])
    everything = await lines(ann)
    ticket_id = [line for line in everything if line["ticket_id"] == ticket_in(run)]
    assert [line["record"] for line in ticket_id] == ["blocked", "voted", "decided", "executed"]
    assert ticket_id[1]["decided_by"] == "bob"
    assert ticket_id[0]["arguments"] == {"what": "it"}
    border = ticket_id[1]["at"]
    before, after = await lines(ann, to=border), await lines(ann, **{"from": border})
    assert sorted(map(json.dumps, before + after)) == sorted(map(json.dumps, everything))
    assert [line["record"] for line in before if line["ticket_id"] == ticket_in(run)] == ["blocked"]


async def test_no_tenant_exports_the_audit_of_another(people: People) -> None:
    run = await waiting(people["ann"], "board")
    assert await lines(people["zoe"]) == []
    response = await people["zoe"].http.get(f"/v1/runs/{run['id']}/audit")
    the_problem(response, 404, "run_not_found")
