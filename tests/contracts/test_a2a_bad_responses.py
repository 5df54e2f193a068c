"""A2A agents that answer wrongly, late or with a refusal: each gets its own error code."""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.backends.a2a import bounds, task
from app.backends.a2a.factory import A2AFactory
from app.backends.base import BackendError
from app.domain.agents.backend_results import Completed
from app.domain.agents.endpoints import Endpoint
from tests.support.prepared_server import PreparedResponse, PreparedServer, as_json, prepared_server
from tests.support.turns import turn_at

pytestmark = pytest.mark.anyio

HTML = PreparedResponse(b"<html>welcome</html>", kind="text/html")
BUSY = PreparedResponse(b"", 503)
TASK: dict[str, Any] = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}
DONE: dict[str, Any] = {"status": {"state": "TASK_STATE_COMPLETED"}}


def answer(result: Any) -> PreparedResponse:
    return as_json({"jsonrpc": "2.0", "id": "1", "result": result})


def artifact(part: Any) -> dict[str, Any]:
    return {"artifacts": [{"artifactId": "a", "parts": [part]}]}


@asynccontextmanager
async def agent(
    *answers: PreparedResponse, before: tuple[PreparedResponse, ...] = (), streams: bool = False
) -> AsyncIterator[PreparedServer]:
    """Answers first with `before`, then with an agent card, then with `answers`."""
    async with prepared_server(HTML) as host:
        interface = {
            "url": f"{host.base}/rpc",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }
        card = as_json(
            {
                "name": "far",
                "supportedInterfaces": [interface],
                "capabilities": {"streaming": streams},
            }
        )
        host.answers = [*before, card, *answers]
        yield host


def far(host: PreparedServer, retry_seconds: float = 5.0) -> Endpoint:
    options = {"retry_seconds": retry_seconds, "poll_interval": 0.1}
    return Endpoint(backend="a2a", url=host.base, options=options, timeout=30)


async def refused_by(host: PreparedServer, retry_seconds: float = 0.2) -> BackendError:
    with pytest.raises(BackendError) as broken:
        await turn_at(A2AFactory(), far(host, retry_seconds))
    return broken.value


@pytest.mark.parametrize(
    "wrong",
    [
        HTML,
        answer(None),
        answer([1]),
        answer({"no": "such thing"}),
        answer({"task": {**TASK, **DONE, **artifact({"data": {"n": float("nan")}})}}),
    ],
)
async def test_an_answer_outside_the_protocol_is_garbled(wrong: PreparedResponse) -> None:
    async with agent(wrong) as host:
        assert (await refused_by(host)).code == "remote_garbled"


async def test_a_card_that_is_not_json_is_garbled() -> None:
    async with agent(before=(HTML,)) as host:
        assert (await refused_by(host)).code == "remote_garbled"


async def test_a_refusal_keeps_the_text_of_the_agent() -> None:
    error = {"code": -32000, "message": "not today"}
    async with agent(as_json({"jsonrpc": "2.0", "id": "1", "error": error})) as host:
        refusal = await refused_by(host)
    assert refusal.code == "remote_refused"
    assert "not today" in refusal.detail


async def test_a_busy_agent_is_asked_again() -> None:
    done = answer({"task": {**TASK, **DONE, **artifact({"text": "hello"})}})
    async with agent(BUSY, done, before=(BUSY, PreparedResponse(b"", 502))) as host:
        result = await turn_at(A2AFactory(), far(host))
        assert (result.status, result.output.text) == (Completed(), "hello")
        assert [method for method, _ in host.asked] == ["GET", "GET", "GET", "POST", "POST"]


async def test_a_request_that_may_have_taken_effect_is_not_repeated() -> None:
    async with agent(PreparedResponse(b"", 502)) as host:
        assert (await refused_by(host)).code == "remote_refused"
        assert [method for method, _ in host.asked] == ["GET", "POST"]


async def test_an_agent_that_stays_busy_ends_the_run() -> None:
    async with agent(BUSY) as host:
        assert (await refused_by(host)).code == "remote_busy"


async def test_whole_numbers_stay_whole() -> None:
    facts = {"n": 1, "half": 0.5, "many": [12345678]}
    done = answer({"task": {**TASK, **DONE, **artifact({"data": facts})}})
    async with agent(done) as host:
        [made] = (await turn_at(A2AFactory(), far(host))).output.artifacts
        assert json.dumps(made.content, sort_keys=True) == json.dumps(facts, sort_keys=True)


def frames(*results: Any, end: str = "\n\n") -> PreparedResponse:
    responses = [json.dumps({"jsonrpc": "2.0", "id": "1", "result": each}) for each in results]
    body = "".join(f"data: {each}{end}" for each in responses)
    return PreparedResponse(body.encode(), kind="text/event-stream")


def progress(text: str) -> dict[str, Any]:
    update = {"artifactId": "a", "parts": [{"text": text}]}
    ids = {"taskId": "t1", "contextId": "c1"}
    return {"artifactUpdate": {**ids, "artifact": update, "append": True}}


ENDED: dict[str, Any] = {"statusUpdate": {"taskId": "t1", "contextId": "c1", **DONE}}


@pytest.mark.parametrize("before", [(), (BUSY,)])
async def test_an_endless_response_is_refused(
    monkeypatch: pytest.MonkeyPatch, before: tuple[PreparedResponse, ...]
) -> None:
    monkeypatch.setattr(bounds, "MAX_BYTES", 100_000)
    huge = PreparedResponse(b'{"name": "' + b"x" * 10_000_000)
    async with agent(huge, before=(*before, huge) if before else ()) as host:
        refusal = await refused_by(host, retry_seconds=30)
    assert refusal.code == "remote_garbled"
    assert "100000 bytes" in refusal.detail


async def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_BYTES", 100_000)
    endless = PreparedResponse(b"data: x\n" * 1_000_000, kind="text/event-stream")
    async with agent(endless, streams=True) as host:
        refusal = await refused_by(host)
    assert refusal.code == "remote_garbled"
    assert "an event of over 100000 bytes" in refusal.detail


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
async def test_a_long_stream_of_small_events_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(bounds, "MAX_BYTES", 70_000)
    pieces = ["x" * 1000] * 300
    received = frames({"task": TASK}, *map(progress, pieces), ENDED, end=end)
    async with agent(received, streams=True) as host:
        result = await turn_at(A2AFactory(), far(host))
    assert result.output.text == "".join(pieces)


async def test_endless_artifacts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "MAX_ARTIFACT_BYTES", 10_000)
    received = frames({"task": TASK}, *[progress("x" * 1000)] * 11, ENDED)
    async with agent(received, streams=True) as host:
        assert (await refused_by(host)).code == "remote_too_long"


async def test_a_compressed_answer_is_refused() -> None:
    packed = PreparedResponse(gzip.compress(b"{}"), more=("content-encoding: gzip",))
    async with agent(packed) as host:
        refusal = await refused_by(host)
    assert refusal.code == "remote_garbled"
    assert "gzip" in refusal.detail
    assert host.headers[0]["accept-encoding"] == "identity"
