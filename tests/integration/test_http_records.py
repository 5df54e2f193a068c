"""The trace of a run over HTTP: the client's request id, and the dispatch since which a run waits."""

from typing import Any

import pytest

from app.clock import new_id
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

RISKY = 'CALL risky {"what": "it"}'
TRACE = {"include": "trace"}
Record = dict[str, Any]


async def _identities(client: Client, run: Record) -> list[Record]:
    """The identity in each event of the run that has one."""
    emitted = await client.log(f"/v1/runs/{run['id']}")
    return [event["identity"] for event in emitted if "identity" in event]


async def _traced(client: Client, run_id: str) -> Record:
    """The run's record with its trace, when it is done or waits."""
    await client.settled(run_id)
    return await client.run(run_id, **TRACE)


async def _start(client: Client, request_id: str, prompt: str = "hi", **more: Any) -> Record:
    response = await client.http.post(
        "/v1/runs",
        params=TRACE,
        json=start_body("quick", prompt, **more),
        headers={"X-Request-Id": request_id},
    )
    assert response.status_code == 202
    started: Record = response.json()
    return started


async def test_the_request_id_of_a_start_is_stored_in_the_run_and_in_its_identity(
    client: Client,
) -> None:
    started = await _start(client, "checkout-17")
    run = await _traced(client, started["id"])
    assert started["transport_request_id"] == run["transport_request_id"] == "checkout-17"
    assert run["request"]["transport_request_id"] == "checkout-17"
    identities = await _identities(client, run)
    assert [each["transport_request_id"] for each in identities] == ["checkout-17"] * 2


async def test_a_start_without_a_request_id_has_none(client: Client) -> None:
    run = await _traced(client, (await client.start("quick", "hi"))["id"])
    assert "transport_request_id" not in run
    assert "transport_request_id" not in run["request"]
    assert all("transport_request_id" not in each for each in await _identities(client, run))


@pytest.mark.parametrize("given", ["", "a" * 201, "caf\u00e9", "a\tb"], ids=repr)
async def test_a_request_id_that_is_blank_long_or_not_plain_text_is_dropped(
    client: Client, given: str
) -> None:
    response = await client.http.post(
        "/v1/runs",
        params=TRACE,
        json=start_body("quick", "hi"),
        headers=[(b"X-Request-Id", given.encode("latin-1"))],
    )
    assert response.status_code == 202
    assert "transport_request_id" not in response.json()
    assert response.json()["session_id"]


async def test_the_same_start_under_another_request_id_is_a_repetition(client: Client) -> None:
    ids = {"run_id": new_id(), "thread_id": new_id()}
    await _start(client, "first", **ids)
    again = await _start(client, "second", **ids)
    assert again["transport_request_id"] == "first"


async def test_a_run_that_a_message_starts_has_the_messages_request_id(client: Client) -> None:
    first = await _start(client, "first")
    await client.ended(first["id"])
    response = await client.http.post(
        f"/v1/threads/{first['thread_id']}/messages",
        json={"messages": [{"role": "user", "content": "more"}]},
        headers={"X-Request-Id": "second"},
    )
    assert response.status_code == 202
    run = await _traced(client, response.json()["run_id"])
    assert run["transport_request_id"] == "second"


@pytest.mark.parametrize("headers", [{"X-Request-Id": "second"}, {}], ids=["named", "unnamed"])
async def test_a_retry_has_the_request_id_of_its_own_request(
    client: Client, headers: dict[str, str]
) -> None:
    first = await _start(client, "first", RISKY)
    await client.settled(first["id"])
    await client.post(f"/v1/runs/{first['id']}/cancel")
    response = await client.http.post(
        f"/v1/runs/{first['id']}/retry", params=TRACE, headers=headers
    )
    assert response.status_code == 202
    assert response.json().get("transport_request_id") == headers.get("X-Request-Id")


async def test_a_directly_started_run_waits_since_the_dispatch_of_its_session(
    client: Client,
) -> None:
    started = await client.start("quick", RISKY)
    run = await _traced(client, started["id"])
    assert "dispatch_id" not in run
    assert run["waiting"]["since_dispatch_id"] == run["session_id"]
    finish = (await client.log(f"/v1/runs/{run['id']}"))[-1]
    assert finish["waiting"]["since_dispatch_id"] == run["session_id"]
    [listed] = (await client.get("/v1/runs", thread_id=run["thread_id"], **TRACE))["items"]
    assert listed["waiting"]["since_dispatch_id"] == run["session_id"]


async def test_a_delivered_run_waits_since_the_dispatch_of_its_delivery(client: Client) -> None:
    first = await client.start("talker", "some words that take a while to say")
    second = await client.start("quick", RISKY, thread_id=first["thread_id"])
    run = await _traced(client, second["id"])
    assert run["dispatch_id"]
    assert run["waiting"]["since_dispatch_id"] == run["dispatch_id"]
    finish = (await client.log(f"/v1/runs/{run['id']}"))[-1]
    assert finish["waiting"]["since_dispatch_id"] == run["dispatch_id"]
