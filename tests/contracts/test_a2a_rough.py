"""A2A agents that answer wrongly, late or with no: each is told apart, and none breaks us."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.backends.a2a.factory import A2AFactory
from app.backends.base import BackendError
from app.domain.agents.backend_results import Completed
from app.domain.agents.endpoints import Endpoint
from tests.support.rough_host import Ready, RoughHost, as_json, rough_host
from tests.support.turns import turn_at

pytestmark = pytest.mark.anyio

HTML = Ready(b"<html>welcome</html>", kind="text/html")
BUSY = Ready(b"", 503)
TASK: dict[str, Any] = {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_WORKING"}}
DONE: dict[str, Any] = {"status": {"state": "TASK_STATE_COMPLETED"}}


def answer(result: Any) -> Ready:
    return as_json({"jsonrpc": "2.0", "id": "1", "result": result})


def artifact(part: Any) -> dict[str, Any]:
    return {"artifacts": [{"artifactId": "a", "parts": [part]}]}


@asynccontextmanager
async def agent(*answers: Ready, before: tuple[Ready, ...] = ()) -> AsyncIterator[RoughHost]:
    """Its card, once it is given out, and then its answers."""
    async with rough_host(HTML) as host:
        interface = {
            "url": f"{host.base}/rpc",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }
        card = as_json({"name": "far", "supportedInterfaces": [interface], "capabilities": {}})
        host.answers = [*before, card, *answers]
        yield host


def far(host: RoughHost, patience: float = 5.0) -> Endpoint:
    options = {"retry_seconds": patience, "poll_interval": 0.1}
    return Endpoint(backend="a2a", url=host.base, options=options, timeout=30)


async def refused_by(host: RoughHost) -> BackendError:
    with pytest.raises(BackendError) as broken:
        await turn_at(A2AFactory(), far(host, patience=0.2))
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
async def test_what_isnt_of_the_protocol_is_named_as_that(wrong: Ready) -> None:
    async with agent(wrong) as host:
        assert (await refused_by(host)).code == "remote_garbled"


async def test_a_card_that_is_none_is_named_as_that() -> None:
    async with agent(before=(HTML,)) as host:
        assert (await refused_by(host)).code == "remote_garbled"


async def test_a_no_is_told_in_its_own_words() -> None:
    error = {"code": -32000, "message": "not today"}
    async with agent(as_json({"jsonrpc": "2.0", "id": "1", "error": error})) as host:
        refusal = await refused_by(host)
    assert refusal.code == "remote_refused"
    assert "not today" in refusal.detail


async def test_who_is_busy_for_a_while_is_asked_again() -> None:
    done = answer({"task": {**TASK, **DONE, **artifact({"text": "hello"})}})
    async with agent(BUSY, done, before=(BUSY, Ready(b"", 502))) as host:
        result = await turn_at(A2AFactory(), far(host))
        assert (result.status, result.output.text) == (Completed(), "hello")
        assert [method for method, _ in host.asked] == ["GET", "GET", "GET", "POST", "POST"]


async def test_who_may_have_begun_isnt_asked_again() -> None:
    async with agent(Ready(b"", 502)) as host:
        assert (await refused_by(host)).code == "remote_refused"
        assert [method for method, _ in host.asked] == ["GET", "POST"]


async def test_who_stays_busy_ends_the_run() -> None:
    async with agent(BUSY) as host:
        assert (await refused_by(host)).code == "remote_busy"


async def test_whole_numbers_stay_whole() -> None:
    facts = {"n": 1, "half": 0.5, "many": [12345678]}
    done = answer({"task": {**TASK, **DONE, **artifact({"data": facts})}})
    async with agent(done) as host:
        [made] = (await turn_at(A2AFactory(), far(host))).output.artifacts
        assert json.dumps(made.content, sort_keys=True) == json.dumps(facts, sort_keys=True)
