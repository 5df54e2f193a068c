"""The inbox: its filters, the fields of a ticket, and the feed of ticket changes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.clock import new_id
from app.domain.ids import Tenant
from app.domain.tickets.tickets import TicketFilter
from app.events.follow_tickets import NoticeFilter, TicketFollower
from app.llm.scripted.model import in_order, turn
from app.storage.postgres.database import Database
from app.storage.tickets import feed
from tests.integration.conftest import AGENTS
from tests.support.open_tickets import open_tickets
from tests.support.probes import Probe
from tests.support.problems import the_problem
from tests.support.replicas import TIMEOUT_SECONDS, Replica, an_agent, open_replica
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
    return await client.settled(started["id"])


def ticket_in(run: dict[str, Any]) -> str:
    return str(run["waiting"]["tickets"][0]["id"])


async def newest(client: Client) -> int:
    """The cursor after all notices so far."""
    after = 0
    while True:
        page = await client.get("/v1/tickets/events", cursor=after)
        after = int(page["next_cursor"])
        if not page["has_more"]:
            return after


def follow(client: Client, **params: Any) -> Any:
    return client.events("/v1/tickets", **params)


def kinds(stream: Stream, of: str) -> list[str]:
    return [
        event["event_type"]
        for event in stream.received
        if of in (event.get("ticket_id"), event.get("ticket", {}).get("id"))
    ]


# --- one ticket -----------------------------------------------------------------------------------


async def test_a_ticket_includes_all_that_an_approver_needs(client: Client) -> None:
    before = await waiting_run(client, "the shelf")
    await client.decide(before, "reject", reason="Not on a Friday.")
    run = await waiting_run(client, "the shelf", metadata={"case": "7"})
    page = await client.get(f"/v1/tickets/{ticket_in(run)}")
    assert (page["tool_name"], page["arguments"]) == ("risky", {"what": "the shelf"})
    assert page["tool"]["name"] == "risky"
    assert page["tool"]["parameters"]["properties"].keys() == {"what"}
    assert page["agent_id"] == "quick"
    assert page["agent_description"] == "Makes the calls that it is told to make."
    assert page["run"]["id"] == run["id"]
    assert (page["run"]["started_by"], page["run"]["metadata"]) == ("local", {"case": "7"})
    assert page["run"]["agent_version"] == run["agent_version"]
    emitted = [(message["role"], message["content"]) for message in page["last_messages"]]
    assert emitted[0] == ("user", [{"type": "text", "text": APPROVAL % "the shelf"}])
    assert [message["seq"] for message in page["last_messages"]] == [1, 2, 3]
    [alike, *_] = page["similar"]
    assert (alike["id"], alike["same_arguments"]) == (ticket_in(before), True)
    assert alike["decision"]["reason"] == "Not on a Friday."
    assert alike["decision"]["decided_by"] == "local"


# --- lists ----------------------------------------------------------------------------------------


async def test_the_list_of_tickets_can_be_filtered(client: Client) -> None:
    run = await waiting_run(client, "filters")
    of_run = ticket_in(run)

    async def shown(**query: Any) -> list[str]:
        page = await client.get("/v1/tickets", limit=200, **query)
        return [ticket["id"] for ticket in page["items"]]

    for query in (
        {},
        {"status": "open"},
        {"agent_id": "quick"},
        {"tool_name": "risky"},
        {"assignee": "me"},
        {"run_id": run["id"]},
        {"thread_id": run["thread_id"]},
    ):
        assert of_run in await shown(**query), query
    for query in (
        {"status": "void"},
        {"agent_id": "talker"},
        {"tool_name": "add"},
        {"thread_id": new_id()},
        {"expires_before": "2100-01-01T00:00:00Z"},
    ):
        assert of_run not in await shown(**query), query
    await client.decide(run, "approve")
    assert of_run not in await shown(assignee="me")
    the_problem(
        await client.http.get("/v1/tickets", params={"assignee": "ann"}), 422, "invalid_request"
    )


async def test_tickets_of_a_finished_run_are_void(client: Client) -> None:
    run = await waiting_run(client, "void")
    after = await newest(client)
    await client.post(f"/v1/runs/{run['id']}/cancel")
    page = await client.get("/v1/tickets", status="void", run_id=run["id"])
    assert [ticket["id"] for ticket in page["items"]] == [ticket_in(run)]
    async with follow(client, cursor=after) as stream:
        event = await stream.until("ticket_void")
    assert (event["ticket_id"], event["run_id"]) == (ticket_in(run), run["id"])


# --- the stream -----------------------------------------------------------------------------------


async def test_the_stream_reports_each_change_of_a_ticket(client: Client) -> None:
    after = await newest(client)
    async with follow(client, last_id=str(after)) as stream:
        run = await waiting_run(client, "live")
        opened = await stream.until("ticket_opened")
        await client.decide(run, "approve", reason="fine")
        decided = await stream.until("ticket_decided")
    assert [event["seq"] for event in stream.received] == [after + 1, after + 2]
    [ticket] = run["waiting"]["tickets"]
    assert opened["ticket"]["id"] == ticket["id"]
    assert opened["ticket"]["arguments"] == {"what": "live"}
    assert (opened["agent_id"], opened["run_id"]) == ("quick", run["id"])
    assert (decided["ticket_id"], decided["action"]) == (ticket["id"], "approve")
    assert (decided["decided_by"], decided["reason"]) == ("local", "fine")


async def test_a_reconnected_reader_gets_each_notice_once_and_unchanged(client: Client) -> None:
    after = await newest(client)
    async with follow(client, cursor=after) as stream:
        run = await waiting_run(client, "again")
        await stream.until("ticket_opened")
    await client.decide(run, "approve")
    async with follow(client, cursor=after, last_id=stream.last_id) as remaining:
        await remaining.until("ticket_decided")
    whole = await client.get("/v1/tickets/events", cursor=after)
    assert whole["items"] == stream.received + remaining.received
    assert whole["next_cursor"] == remaining.last_id


async def test_the_stream_of_tickets_can_be_filtered(client: Client) -> None:
    after = await newest(client)
    await waiting_run(client, "filtered")
    page = await client.get("/v1/tickets/events", cursor=after, tool_name="add")
    assert (page["items"], page["next_cursor"]) == ([], str(after + 1))
    page = await client.get("/v1/tickets/events", cursor=after, agent_id="quick")
    assert len(page["items"]) == 1


async def test_cursors_that_cannot_be_continued_are_refused(client: Client) -> None:
    response = await client.http.get("/v1/tickets/events", params={"cursor": "x"})
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
    elsewhere = await client.post("/v1/stream-tokens", {"run_id": run["id"]}, 201)
    response = await client.http.get(
        "/v1/tickets/events", params={"stream_token": elsewhere["token"]}
    )
    the_problem(response, 403, "stream_token_elsewhere")


async def test_a_change_by_one_server_is_reported_by_another_also_after_a_restart(
    served_database: str, client: Client
) -> None:
    after = await newest(client)
    run = await waiting_run(client, "elsewhere")
    async with (
        serving(served_database, agents=AGENTS) as other,
        other.client() as other_server,
        follow(other_server, cursor=after) as stream,
    ):
        await stream.until("ticket_opened")
        await client.decide(run, "approve")
        await stream.until("ticket_decided")
    assert kinds(stream, ticket_in(run)) == ["ticket_opened", "ticket_decided"]


# --- numbers --------------------------------------------------------------------------------------


async def test_a_slow_commit_delays_no_other_notice_and_is_not_lost(database: Database) -> None:
    """A notice that commits late gets a later number, although it was written earlier."""
    slow, quick = await running(database.pool), await running(database.pool)
    tenant = slow.tenant

    async def read(after: int) -> tuple[list[tuple[int, str]], int]:
        found = await feed.read_after(database, tenant, after, EVERYTHING, 100)
        return [(notice.number, notice.ticket.run_id) for notice in found.notices], found.head

    async with database.transaction() as connection:
        await open_tickets(connection, tenant, [ticket_of(slow)])
        async with database.transaction() as other:
            await open_tickets(other, tenant, [ticket_of(quick)])
        assert await read(0) == ([(1, quick.id)], 1)
    assert await read(1) == ([(2, slow.id)], 2)
    assert await read(0) == ([(1, quick.id), (2, slow.id)], 2)


async def test_concurrent_readers_assign_the_same_numbers(database: Database) -> None:
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
            await open_tickets(connection, tenant, [ticket_of(run, name)])

    async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as group:
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
        await open_tickets(connection, run.tenant, [ticket_of(run)])
    foreign = await feed.read_after(database, Tenant("globex"), 0, EVERYTHING, 10)
    assert (foreign.notices, foreign.head) == ((), 0)


# --- notifications --------------------------------------------------------------------------------


async def assert_decision_is_received(
    follower_of: Replica, decided_by: Replica, probe: Probe
) -> None:
    follower = TicketFollower(
        follower_of.feeds,
        Tenant("default"),
        NoticeFilter(),
        after=0,
        heartbeat=TIMEOUT_SECONDS,
    )
    run = await decided_by.start()
    frames = follower.frames()
    received: list[str] = []
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS - 1):
            while len(received) < 2:
                received += [frame.event_type for frame in await anext(frames) or ()]
                if received == ["ticket_opened"]:
                    await run.decide("perm_c1", "approve")
    finally:
        await frames.aclose()
        follower.close()
    assert received == ["ticket_opened", "ticket_decided"]
    await run.finished(2)


async def test_a_notification_is_followed_without_waiting_for_the_next_poll(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(turn(probe.call("c1")), turn("done"))
    agent = an_agent(probe.tool, approval=["probe"])
    async with (
        open_replica(database_url, agent, script) as here,
        open_replica(database_url, agent, script) as other_server,
    ):
        await assert_decision_is_received(here, other_server, probe)
