"""The inbox: its filters, a ticket with all that it takes to decide, and the feed of what becomes of them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.ids import Tenant
from app.domain.tickets.tickets import TicketFilter
from app.events.follow_tickets import TicketFollower
from app.llm.scripted.model import in_order, turn
from app.storage.postgres.database import Database
from app.storage.tickets import feed, tickets
from tests.integration.conftest import AGENTS
from tests.support.house import PATIENCE, Replica, an_agent, replica
from tests.support.probes import Probe
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.stored_runs import running, ticket_of
from tests.support.streams import EVENT_STREAM, Client, Stream

pytestmark = pytest.mark.anyio

APPROVAL = 'CALL risky {"what": "%s"}'
EVERYTHING = TicketFilter()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as ours:
        yield ours


async def waiting_run(client: Client, what: str, **more: Any) -> dict[str, Any]:
    started = await client.start("quick", APPROVAL % what, **more)
    return await client.settled(started["run_id"])


def ticket_in(run: dict[str, Any]) -> str:
    return str(run["waiting"]["tickets"][0]["id"])


async def newest(client: Client) -> int:
    """The cursor after everything that the inbox has said so far."""
    after = 0
    while True:
        page = await client.get("/v1/tickets/events", after=after)
        after = int(page["next_cursor"])
        if not page["has_more"]:
            return after


def follow(client: Client, **params: Any) -> Any:
    return client.events("/v1/tickets", **params)


def kinds(stream: Stream, of: str) -> list[str]:
    return [
        event["event_type"]
        for event in stream.heard
        if of in (event.get("id"), event.get("ticket", {}).get("id"))
    ]


# --- one ticket -----------------------------------------------------------------------------------


async def test_a_ticket_comes_with_all_that_an_approver_needs(client: Client) -> None:
    before = await waiting_run(client, "the shelf")
    await client.decide(before, "reject", reason="Not on a Friday.")
    run = await waiting_run(client, "the shelf", metadata={"case": "7"})
    page = await client.get(f"/v1/tickets/{ticket_in(run)}")
    assert (page["tool_name"], page["arguments"]) == ("risky", {"what": "the shelf"})
    assert page["tool"]["name"] == "risky"
    assert page["tool"]["parameters"]["properties"].keys() == {"what"}
    assert page["agent_id"] == "quick"
    assert page["agent_description"] == "Makes the calls that it is told to make."
    assert page["run"]["run_id"] == run["run_id"]
    assert (page["run"]["started_by"], page["run"]["metadata"]) == ("local", {"case": "7"})
    assert page["run"]["agent_version"] == run["agent_version"]
    said = [(message["role"], message["content"]) for message in page["last_messages"]]
    assert said[0] == ("user", [{"type": "text", "text": APPROVAL % "the shelf"}])
    assert [message["seq"] for message in page["last_messages"]] == [1, 2, 3]
    [alike, *_] = page["similar"]
    assert (alike["id"], alike["same_arguments"]) == (ticket_in(before), True)
    assert alike["decision"]["reason"] == "Not on a Friday."
    assert alike["decision"]["decided_by"] == "local"


# --- lists ----------------------------------------------------------------------------------------


async def test_the_list_shows_what_is_asked_for(client: Client) -> None:
    run = await waiting_run(client, "filters")
    mine = ticket_in(run)

    async def shown(**query: Any) -> list[str]:
        page = await client.get("/v1/tickets", limit=200, **query)
        return [ticket["id"] for ticket in page["items"]]

    for query in (
        {},
        {"status": "open"},
        {"agent_id": "quick"},
        {"tool": "risky"},
        {"assignee": "me"},
        {"run_id": run["run_id"]},
    ):
        assert mine in await shown(**query), query
    for query in (
        {"status": "void"},
        {"agent_id": "talker"},
        {"tool": "add"},
        {"expires_before": "2100-01-01T00:00:00Z"},
    ):
        assert mine not in await shown(**query), query
    await client.decide(run, "approve")
    assert mine not in await shown(assignee="me")
    the_problem(
        await client.http.get("/v1/tickets", params={"assignee": "ann"}), 422, "invalid_request"
    )


async def test_tickets_of_a_run_that_is_over_are_void(client: Client) -> None:
    run = await waiting_run(client, "void")
    after = await newest(client)
    await client.post(f"/v1/runs/{run['run_id']}/cancel")
    page = await client.get("/v1/tickets", status="void", run_id=run["run_id"])
    assert [ticket["id"] for ticket in page["items"]] == [ticket_in(run)]
    async with follow(client, after=after) as stream:
        event = await stream.until("ticket_void")
    assert (event["id"], event["run_id"]) == (ticket_in(run), run["run_id"])


# --- the stream -----------------------------------------------------------------------------------


async def test_the_stream_tells_what_becomes_of_tickets(client: Client) -> None:
    after = await newest(client)
    async with follow(client, last_id=str(after)) as stream:
        run = await waiting_run(client, "live")
        opened = await stream.until("ticket_opened")
        await client.decide(run, "approve", reason="fine")
        decided = await stream.until("ticket_decided")
    assert [event["seq"] for event in stream.heard] == [after + 1, after + 2]
    [ticket] = run["waiting"]["tickets"]
    assert opened["ticket"]["id"] == ticket["id"]
    assert opened["ticket"]["arguments"] == {"what": "live"}
    assert (opened["agent_id"], opened["run_id"]) == ("quick", run["run_id"])
    assert (decided["id"], decided["action"]) == (ticket["id"], "approve")
    assert (decided["decided_by"], decided["reason"]) == ("local", "fine")


async def test_whoever_comes_back_gets_each_notice_once_and_as_it_was(client: Client) -> None:
    after = await newest(client)
    async with follow(client, after=after) as stream:
        run = await waiting_run(client, "again")
        await stream.until("ticket_opened")
    await client.decide(run, "approve")
    async with follow(client, after=after, last_id=stream.last_id) as rest:
        await rest.until("ticket_decided")
    whole = await client.get("/v1/tickets/events", after=after)
    assert whole["items"] == stream.heard + rest.heard
    assert whole["next_cursor"] == rest.last_id


async def test_the_stream_shows_what_is_asked_for(client: Client) -> None:
    after = await newest(client)
    await waiting_run(client, "filtered")
    page = await client.get("/v1/tickets/events", after=after, tool="add")
    assert (page["items"], page["next_cursor"]) == ([], str(after + 1))
    page = await client.get("/v1/tickets/events", after=after, agent_id="quick")
    assert len(page["items"]) == 1


async def test_cursors_that_cannot_be_continued_are_refused(client: Client) -> None:
    response = await client.http.get("/v1/tickets/events", params={"after": "x"})
    the_problem(response, 400, "cursor_invalid")
    beyond = await newest(client) + 1
    response = await client.http.get(
        "/v1/tickets/events", headers={**EVENT_STREAM, "Last-Event-ID": str(beyond)}
    )
    assert the_problem(response, 410, "cursor_expired")["snapshot"] == "/v1/tickets?status=open"
    async with follow(client, **{"from": "now"}) as stream:
        await waiting_run(client, "now")
        event = await stream.next()
    assert event is not None
    assert event["seq"] == beyond


async def test_a_browser_follows_with_a_token(client: Client) -> None:
    token = await client.post("/v1/stream-tokens", {"inbox": True}, 201)
    page = await client.get("/v1/tickets/events", stream_token=token["token"])
    assert page["next_cursor"] == str(await newest(client))
    run = await client.start("quick", "hello")
    elsewhere = await client.post("/v1/stream-tokens", {"run_id": run["run_id"]}, 201)
    response = await client.http.get(
        "/v1/tickets/events", params={"stream_token": elsewhere["token"]}
    )
    the_problem(response, 403, "stream_token_elsewhere")


async def test_what_one_server_does_another_tells_also_after_a_restart(
    served_database: str, client: Client
) -> None:
    after = await newest(client)
    run = await waiting_run(client, "elsewhere")
    async with (
        serving(served_database, agents=AGENTS) as other,
        other.client() as there,
        follow(there, after=after) as stream,
    ):
        await stream.until("ticket_opened")
        await client.decide(run, "approve")
        await stream.until("ticket_decided")
    assert kinds(stream, ticket_in(run)) == ["ticket_opened", "ticket_decided"]


# --- numbers --------------------------------------------------------------------------------------


async def test_a_slow_commit_holds_up_nobody_and_is_not_lost(database: Database) -> None:
    """What commits late gets a later number, however early it was written."""
    slow, quick = await running(database.pool), await running(database.pool)
    tenant = slow.tenant

    async def read(after: int) -> tuple[list[tuple[int, str]], int]:
        found = await feed.read_after(database, tenant, after, EVERYTHING, 100)
        return [(notice.number, notice.ticket.run_id) for notice in found.notices], found.head

    async with database.transaction() as connection:
        await tickets.open_all(connection, tenant, [ticket_of(slow)])
        async with database.transaction() as other:
            await tickets.open_all(other, tenant, [ticket_of(quick)])
        assert await read(0) == ([(1, quick.id)], 1)
    assert await read(1) == ([(2, slow.id)], 2)
    assert await read(0) == ([(1, quick.id), (2, slow.id)], 2)


async def test_many_readers_number_at_once_and_agree(database: Database) -> None:
    runs = [await running(database.pool) for _ in range(5)]
    tenant = runs[0].tenant
    seen: list[list[tuple[int, str]]] = []

    async def read_along() -> None:
        numbers: list[tuple[int, str]] = []
        while len(numbers) < 10:
            after = numbers[-1][0] if numbers else 0
            found = await feed.read_after(database, tenant, after, EVERYTHING, 3)
            numbers += [(notice.number, notice.ticket.id) for notice in found.notices]
        seen.append(numbers)

    async def open_one(run: Any, name: str) -> None:
        async with database.transaction() as connection:
            await tickets.open_all(connection, tenant, [ticket_of(run, name)])

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(read_along())
        for run in runs:
            for name in ("a", "b"):
                group.create_task(open_one(run, name))
    assert [number for number, _ in seen[0]] == list(range(1, 11))
    assert seen[0] == seen[1] == seen[2]


async def test_tenants_have_feeds_of_their_own(database: Database) -> None:
    run = await running(database.pool)
    async with database.transaction() as connection:
        await tickets.open_all(connection, run.tenant, [ticket_of(run)])
    foreign = await feed.read_after(database, Tenant("globex"), 0, EVERYTHING, 10)
    assert (foreign.notices, foreign.head) == ((), 0)


# --- hints ----------------------------------------------------------------------------------------


async def heard_after_a_decision(follower_of: Replica, decided_by: Replica, probe: Probe) -> None:
    follower = TicketFollower(
        follower_of.database,
        follower_of.hub,
        Tenant("default"),
        EVERYTHING,
        after=0,
        heartbeat=PATIENCE,
        poll=PATIENCE,
    )
    run = await decided_by.start()
    frames = follower.frames()
    heard: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE - 1):
            while len(heard) < 2:
                heard += [frame.event_type for frame in await anext(frames) or ()]
                if heard == ["ticket_opened"]:
                    await run.decide("perm_c1", "approve")
    finally:
        await frames.aclose()
        follower.close()
    assert heard == ["ticket_opened", "ticket_decided"]
    await run.finished(2)


async def test_nobody_waits_for_the_next_look_when_there_is_a_hint(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    agent = an_agent(probe.tool, approval=["probe"])
    async with (
        replica(database_url, agent, script) as here,
        replica(database_url, agent, script) as there,
    ):
        await heard_after_a_decision(here, there, probe)
