"""Tickets by expiry, their number, and what their tools do."""

from typing import Any

import asyncpg
import pytest

from tests.support.problems import the_problem
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

HOUR = 3600


async def asked(client: Client, agent: str = "quick", **more: Any) -> str:
    """The ticket of a new run."""
    run = await client.start(agent, 'CALL risky {"what": "it"}', **more)
    waiting = await client.settled(run["id"])
    return str(waiting["waiting"]["tickets"][0]["id"])


async def pages(client: Client, **query: Any) -> list[str]:
    """The ids of all tickets of a list, read in pages of two."""
    found: list[str] = []
    page = await client.get("/v1/tickets", limit=2, **query)
    while True:
        found += [ticket["id"] for ticket in page["items"]]
        if not page["has_more"]:
            return found
        page = await client.get("/v1/tickets", limit=2, cursor=page["next_cursor"], **query)


@pytest.fixture(scope="module")
async def by_expiry(client: Client) -> list[str]:
    """Open tickets, of which the last two never expire."""
    hours = {3: "", 1: "", 2: ""}
    for each in hours:
        policy = {"expires_in": each * HOUR, "on_expiry": "reject"}
        hours[each] = await asked(client, ticket_policy=policy)
    never = [await asked(client) for _ in range(2)]
    return [hours[1], hours[2], hours[3], *never]


async def test_the_tickets_that_expire_first_come_first_and_the_others_last(
    client: Client, by_expiry: list[str]
) -> None:
    listed = {"sort": "expires_at", "status": "open"}
    assert await pages(client, **listed, order="asc") == by_expiry
    assert await pages(client, **listed) == by_expiry[::-1]
    assert await pages(client, **listed, order="asc", assignee="me") == by_expiry
    assert await pages(client, sort="expires_at", order="asc", tool_name="add") == []


async def test_a_cursor_by_expiry_is_refused_by_creation(
    client: Client, by_expiry: list[str]
) -> None:
    page = await client.get("/v1/tickets", sort="expires_at", order="asc", limit=1)
    wrong = {"order": "asc", "cursor": page["next_cursor"]}
    response = await client.http.get("/v1/tickets", params=wrong)
    the_problem(response, 400, "cursor_mismatch")
    unknown = await client.http.get("/v1/tickets", params={"sort": "expiry"})
    the_problem(unknown, 422, "invalid_request")


async def test_the_count_has_the_filters_of_the_list(client: Client, by_expiry: list[str]) -> None:
    ticket = await client.get(f"/v1/tickets/{by_expiry[0]}")
    for query in (
        {"status": "open"},
        {"status": "decided"},
        {"run_id": ticket["run_id"]},
        {"root_run_id": ticket["run_id"]},
        {"thread_id": ticket["thread_id"]},
        {"tool_name": "risky", "assignee": "me"},
        {"agent_id": "talker"},
        {"expires_before": ticket["expires_at"]},
        {"kind": "limit"},
        {"created_after": ticket["created_at"]},
        {"created_before": ticket["created_at"]},
    ):
        counted = await client.get("/v1/tickets/count", **query)
        assert counted == {"count": len(await pages(client, **query)), "is_exact": True}, query
    unknown = await client.http.get("/v1/tickets/count", params={"statsu": "open"})
    assert "did you mean status" in the_problem(unknown, 422, "invalid_request")["detail"]


async def test_a_large_number_of_tickets_is_not_counted_to_its_end(
    client: Client, served_database: str, by_expiry: list[str]
) -> None:
    ticket = await client.get(f"/v1/tickets/{by_expiry[0]}")
    connection = await asyncpg.connect(served_database)
    try:
        await connection.execute(COPIES, ticket["id"])
        counted = await client.get("/v1/tickets/count", tool_name="copied")
        assert counted == {"count": 1_000, "is_exact": False}
        await connection.execute("DELETE FROM tickets WHERE ticket_id = 'copy 1001'")
        exact = await client.get("/v1/tickets/count", tool_name="copied")
        assert exact == {"count": 1_000, "is_exact": True}
    finally:
        await connection.close()


COPIES = """
INSERT INTO tickets (tenant, id, run_id, thread_id, agent_id, ticket_id, kind, step_index, tool_name,
    arguments, args_digest, resume_mode, allowed_actions, message, status)
SELECT tenant, gen_random_uuid(), run_id, thread_id, agent_id, 'copy ' || n, kind, step_index, 'copied',
    arguments, args_digest, resume_mode, allowed_actions, message, 'void'
FROM tickets, generate_series(1, 1001) AS n WHERE id = CAST($1 AS uuid)
"""


async def test_a_ticket_says_what_its_tool_does_in_lists_events_and_runs(client: Client) -> None:
    id = await asked(client)
    [listed] = [each for each in (await client.get("/v1/tickets"))["items"] if each["id"] == id]
    assert listed["tool_effect"] == "unsafe"
    run = await client.run(listed["run_id"])
    assert run["waiting"]["tickets"][0]["tool_effect"] == "unsafe"
    events = (await client.get(f"/v1/runs/{run['id']}/events"))["items"]
    [opened] = [event for event in events if event["event_type"] == "ticket_opened"]
    assert opened["ticket"]["tool_effect"] == "unsafe"
