"""What the console's pages of the server read: processes, queue, statistics, decisions of several runs, one event."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.clock import new_id
from tests.support.conditions import eventually
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parents[1] / "surface" / "agents" / "agents.toml"
RISKY = 'CALL risky {"what": "it"}'
Json = dict[str, Any]


@pytest.fixture(scope="module")
async def server(served_database: str) -> AsyncIterator[Server]:
    async with serving(served_database, agents=AGENTS) as running:
        yield running


async def asking(client: Client) -> Json:
    return await client.settled((await client.start("quick", RISKY))["id"])


def ticket_of(run: Json) -> str:
    found: str = run["waiting"]["tickets"][0]["id"]
    return found


async def test_the_process_that_answers_is_a_living_worker(client: Client) -> None:
    system = await client.get("/v1/system")
    workers = (await client.get("/v1/workers"))["items"]
    [own] = [each for each in workers if each["id"] == system["worker_id"]]
    assert own["is_alive"]
    assert own["executing"] == 0
    assert system["database_schema"]["status"] == "current"


async def test_the_queue_counts_unfinished_runs_and_open_tickets(client: Client) -> None:
    before = await client.get("/v1/queue", agent_id="quick")
    await asking(client)

    async def counted() -> bool:
        after = await client.get("/v1/queue", agent_id="quick")
        return bool(
            after["open_tickets"] == before["open_tickets"] + 1
            and sum(after["waiting"].values()) == sum(before["waiting"].values()) + 1
        )

    # Counts are kept for some seconds.
    await eventually(counted)
    other = await client.get("/v1/queue", agent_id="nothing")
    assert (other["open_tickets"], other["waiting"], other["ready"]) == (0, {}, 0)
    assert other["slots"]["total"] >= other["slots"]["free"] >= 0


async def test_statistics_have_all_buckets_of_the_period(client: Client) -> None:
    await client.ended((await client.start("quick", "counted"))["id"])
    # Another period is another question, so no kept answer is read.
    found = await client.get("/v1/stats/runs", bucket="minute", agent_id="quick")
    assert len(found["buckets"]) == 24
    assert found["is_complete"]
    total = sum(each["runs"]["succeeded"] for each in found["buckets"])
    assert total >= 1
    assert sum(each["output_tokens"] for each in found["buckets"]) >= 1


@pytest.mark.parametrize(
    ("period", "problem"),
    [
        ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "query.from"),
        ({"from": "2020-01-01T00:00:00Z", "bucket": "minute"}, "query.bucket"),
        ({"bucket": "week"}, "query.bucket"),
    ],
)
async def test_a_period_that_makes_no_sense_is_refused(
    client: Client, period: dict[str, str], problem: str
) -> None:
    response = await client.http.get("/v1/stats/runs", params=period)
    assert problem in the_problem(response, 422, "invalid_request")["detail"]


async def test_tickets_of_several_runs_are_decided_run_by_run(client: Client) -> None:
    runs = [await asking(client) for _ in range(3)]
    await client.decide(runs[1], "reject")
    unknown = new_id()
    decisions = [
        {"ticket_id": ticket, "action": "approve", "decision_id": new_id()}
        for ticket in (*map(ticket_of, runs), unknown)
    ]
    found = (await client.post("/v1/decisions", {"decisions": decisions}, 200))["runs"]
    assert [each["run_id"] for each in found] == [*(run["id"] for run in runs), None]
    codes = [each["error"] and each["error"]["code"] for each in found]
    assert codes == [None, "ticket_already_decided", None, "ticket_not_found"]
    assert found[1]["error"]["status"] == 409
    assert [len(each["results"]) for each in found] == [1, 0, 1, 0]
    again = (await client.post("/v1/decisions", {"decisions": decisions}, 200))["runs"]
    assert again[0]["results"][0]["status"] == "duplicate"
    for run in runs:
        await client.ended(run["id"])


async def test_decisions_of_one_run_take_effect_together_or_not_at_all(client: Client) -> None:
    first = ticket_of(await asking(client))
    decisions = [{"ticket_id": first, "action": action} for action in ("approve", "reject")]
    [found] = (await client.post("/v1/decisions", {"decisions": decisions}, 200))["runs"]
    assert found["error"]["code"] == "ticket_repeated"
    assert (await client.get(f"/v1/tickets/{first}"))["status"] == "open"


async def test_a_decision_about_several_runs_names_its_ticket(client: Client) -> None:
    body = {"decisions": [{"tool_call_id": "call_1", "action": "approve"}]}
    response = await client.http.post("/v1/decisions", json=body)
    assert "ticket_id" in the_problem(response, 422, "invalid_request")["detail"]


async def test_wrong_arguments_are_named_by_pointer(client: Client) -> None:
    run = await asking(client)
    body = {
        "decisions": [{"ticket_id": ticket_of(run), "action": "edit", "arguments": {"what": 7}}]
    }
    response = await client.http.post(f"/v1/runs/{run['id']}/decisions", json=body)
    problem = the_problem(response, 422, "arguments_invalid")
    assert [each["at"] for each in problem["errors"]] == ["/what"]


async def test_events_of_some_types_fill_a_page(client: Client) -> None:
    run = await client.ended((await client.start("quick", "a few words " * 40))["id"])
    path = f"/v1/runs/{run['id']}/events"
    page = await client.get(path, types="run_created,run_finish", limit=2)
    assert [each["event_type"] for each in page["items"]] == ["run_created", "run_finish"]
    rest = await client.get(path, types="run_created", cursor=page["next_cursor"])
    assert rest["items"] == []
    assert not rest["has_more"]
    without = await client.get(path, deltas="0", limit=500)
    assert {"text_delta"} & {each["event_type"] for each in without["items"]} == set()
    assert int(without["next_cursor"]) >= int(page["next_cursor"])


async def test_long_texts_of_a_page_are_cut_and_one_event_is_read_whole(client: Client) -> None:
    said = "a few words " * 40
    run = await client.ended((await client.start("quick", said))["id"])
    path = f"/v1/runs/{run['id']}/events"
    page = await client.get(path, types="message_done", max_field_bytes=100)
    [event] = page["items"]
    [pointer] = event["cut"]
    assert pointer == "/message/content/0/text"
    assert len(event["message"]["content"][0]["text"]) == 100
    whole = await client.get(f"{path}/{event['seq']}")
    assert len(whole["message"]["content"][0]["text"]) > 100
    missing = await client.http.get(f"{path}/999999")
    the_problem(missing, 404, "event_not_found")


async def test_an_agent_has_its_tools_and_versions(client: Client) -> None:
    agent = await client.get("/v1/agents/quick")
    risky = next(one for one in agent["tool_details"] if one["name"] == "risky")
    assert risky["parameters"]["properties"]["what"]["type"] == "string"
    assert risky["effect"] in ("read", "idempotent", "unsafe")
    assert [one["is_current"] for one in agent["versions"]].count(True) == 1


async def test_a_call_has_the_time_when_its_tool_began(client: Client) -> None:
    run = await asking(client)
    await client.decide(run, "approve")
    await client.ended(run["id"])
    events = await client.log(f"/v1/runs/{run['id']}")
    [resumed] = [each for each in events if each["event_type"] == "tool_call_resumed"]
    assert run["created_at"] <= resumed["started_at"] <= resumed["ts"]
    assert resumed["duration_ms"] >= 0
    inferred = [each for each in events if each["event_type"] == "inference_complete"]
    assert all(0 <= each["first_token_ms"] <= each["duration_ms"] for each in inferred)


async def test_threads_are_sorted_by_their_last_run_and_show_what_was_said(client: Client) -> None:
    old = (await client.ended((await client.start("quick", "the first"))["id"]))["thread_id"]
    new = (await client.ended((await client.start("quick", "another"))["id"]))["thread_id"]
    query = {"sort": "last_run_at", "include": "first_message,last_message"}
    listed = (await client.get("/v1/threads", limit=2, **query))["items"]
    assert [each["id"] for each in listed] == [new, old]
    await client.ended((await client.start("quick", "again", thread_id=old))["id"])
    page = await client.get("/v1/threads", limit=1, **query)
    [first] = page["items"]
    assert first["id"] == old
    assert first["last_message"]["role"] == "assistant"
    assert first["last_message"]["text"]
    assert first["first_message"]["role"] == "user"
    assert first["first_message"]["text"] == "the first"
    [second] = (await client.get("/v1/threads", limit=1, cursor=page["next_cursor"], **query))[
        "items"
    ]
    assert (second["id"], second["first_message"]["text"]) == (new, "another")
    [plain] = (await client.get("/v1/threads", limit=1, sort="last_run_at"))["items"]
    assert plain.keys().isdisjoint({"first_message", "last_message"})
    unknown = await client.http.get("/v1/threads", params={"include": "last_messages"})
    assert "did you mean last_message" in the_problem(unknown, 422, "invalid_request")["detail"]


async def test_threads_are_found_by_words_of_their_titles(client: Client) -> None:
    title = "Refund of the blue lamp"
    await client.post("/v1/threads", {"title": title}, 201)
    for words in ("blue", "LAMP refund", "ref bl", "' | lamp:* &"):
        found = (await client.get("/v1/threads", title=words))["items"]
        assert [each["title"] for each in found] == [title], words
    for words in ("red", "blue red", "!"):
        assert (await client.get("/v1/threads", title=words))["items"] == [], words


async def test_summaries_have_what_a_table_shows(client: Client) -> None:
    run = await asking(client)
    path = "/v1/run-summaries"
    [found] = (await client.get(path, ids=run["id"]))["items"]
    assert found["input_preview"] == RISKY
    assert found["waiting"] == {"reason": "tool_permission", "needs_decision": True}
    assert found["open_tickets"] == 1
    listed = (await client.get(path, status="waiting,running", agent_id="quick"))["items"]
    assert {each["status"] for each in listed} == {"waiting"}
    assert run["id"] in {each["id"] for each in listed}
    queued = await client.start("quick", "later", thread_id=run["thread_id"])
    [behind] = (await client.get(path, ids=queued["id"]))["items"]
    assert (behind["status"], behind["input_preview"]) == ("created", "later")
    response = await client.http.get(path, params={"ids": run["id"]})
    unchanged = {"If-None-Match": response.headers["etag"]}
    again = await client.http.get(path, params={"ids": run["id"]}, headers=unchanged)
    assert again.status_code == 304
    for query in ({"ids": "7"}, {"status": "asleep"}):
        the_problem(await client.http.get(path, params=query), 422, "invalid_request")


async def test_changes_name_runs_and_have_no_ids(client: Client) -> None:
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}
    async with client.http.stream("GET", "/v1/changes", headers=headers) as response:
        assert response.headers["content-encoding"] == "gzip"
        hints = (
            json.loads(line[6:]) async for line in response.aiter_lines() if line[:6] == "data: "
        )
        assert await anext(hints) == {"reset": True, "tickets": True, "runs": []}
        run = await client.start("quick", RISKY)
        seen: dict[str, str] = {}
        has_tickets = False
        while seen.get(run["id"]) != "waiting" or not has_tickets:
            hint = await anext(hints)
            assert not hint["reset"]
            has_tickets |= hint["tickets"]
            seen |= {each["id"]: each["status"] for each in hint["runs"]}
    assert (await client.get("/v1/changes"))["reset"]
