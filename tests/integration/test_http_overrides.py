"""Overrides over HTTP: accepted values, refused values, and how a truncated answer is shown."""

from typing import Any
from uuid import uuid4

import pytest

from tests.support.problems import the_problem
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

VALID: list[dict[str, Any]] = [
    {"upstream_model": "openai/gpt-5:free", "fallback_upstream_models": ["a", "b"]},
    {"temperature": 0, "top_p": 1, "max_tokens": 1},
    {"reasoning_effort": "max"},
    {"reasoning_effort": {"budget": 4096}},
    {"fallback_upstream_models": []},
]
BROKEN: list[Any] = [
    {"upstream_model": " "},
    {"upstream_model": ""},
    {"upstream_model": "../../files"},
    {"upstream_model": "x?key=1"},
    {"upstream_model": 5},
    {"fallback_upstream_models": ["a", ""]},
    {"fallback_upstream_models": ["a"] * 11},
    {"temperature": -0.1},
    {"temperature": 2.1},
    {"temperature": True},
    {"top_p": 0},
    {"top_p": 1.01},
    {"max_tokens": 0},
    {"max_tokens": 1.5},
    {"max_tokens": 2**31},
    {"reasoning_effort": "extreme"},
    {"reasoning_effort": {"budget": 0}},
    {"reasoning_effort": {"budget": 5, "more": 1}},
    {"seed": 7},
    [],
    "fast",
]


@pytest.mark.parametrize("overrides", VALID, ids=str)
async def test_a_run_keeps_the_overrides_it_was_started_with(
    client: Client, overrides: dict[str, Any]
) -> None:
    async with client.start_stream("quick", "hello", overrides=overrides) as stream:
        received = await stream.rest()
    run = await client.run(received[0]["run_id"], include="trace")
    assert run["request"]["overrides"] == overrides
    [complete] = [event for event in received if event["event_type"] == "inference_complete"]
    assert complete["model"] == overrides.get("upstream_model", complete["model"])


@pytest.mark.parametrize("overrides", BROKEN, ids=str)
async def test_invalid_overrides_are_refused(client: Client, overrides: Any) -> None:
    body = start_body("quick", "hello", overrides=overrides)
    response = await client.http.post("/v1/runs", json=body)
    the_problem(response, 422, "invalid_request")


async def test_a_repeated_start_with_other_overrides_is_refused(client: Client) -> None:
    run_id = str(uuid4())
    without_overrides = start_body("quick", "hello", run_id=run_id)
    assert (await client.http.post("/v1/runs", json=without_overrides)).status_code == 202
    assert (await client.http.post("/v1/runs", json=without_overrides)).status_code == 202
    changed = {**without_overrides, "overrides": {"temperature": 1}}
    response = await client.http.post("/v1/runs", json=changed)
    the_problem(response, 409, "run_id_conflict")


async def test_an_answer_that_a_cancel_truncated_is_marked_as_truncated(client: Client) -> None:
    async with client.start_stream("talker", "one two three four five six seven") as stream:
        await stream.until("text_delta")
        run_id = stream.received[0]["run_id"]
        await client.http.post(f"/v1/runs/{run_id}/cancel", json={})
        received = await stream.rest()
    thread = received[0]["thread_id"]
    answer = await client.http.get(f"/v1/threads/{thread}/messages")
    request_id, cut = answer.json()["items"]
    assert request_id.get("cut_short") is None
    assert cut["cut_short"] == "cancelled"
    assert [block["type"] for block in cut["content"]] == ["text"]
    streamed_text = "".join(
        event["delta"] for event in received if event["event_type"] == "text_delta"
    )
    assert cut["content"][0]["text"] == streamed_text
