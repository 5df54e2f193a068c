"""The Holdfast backend against servers that are busy, aren't Holdfast, or send too much."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.backends.base import BackendError, RemoteAnswer, Turn
from app.backends.remote_holdfast import responses
from app.backends.remote_holdfast.backend import HoldfastFactory
from app.domain.agents.backend_results import BackendResult, Completed
from app.domain.agents.endpoints import Endpoint
from app.domain.ids import AgentId, MessageId, RunId, ThreadId
from app.domain.json_values import JsonObject
from app.domain.structs import replace
from app.domain.threads.messages import Base64Source, Media, Message, Role, Text
from app.domain.tickets.decisions import Action, DecisionAnswer
from tests.support.prepared_server import (
    PreparedResponse,
    PreparedServer,
    as_events,
    as_json,
    prepared_server,
)
from tests.support.turns import RecordedTurn, turn_at

pytestmark = pytest.mark.anyio

ACCEPTED = as_json({"run_id": "there"}, 202)
DRAINING = as_json({"code": "draining", "detail": "later"}, 503)


def finished(response: str, **more: Any) -> dict[str, Any]:
    return {
        "event_type": "run_finish",
        "termination": {"type": "natural_end"},
        "result": {"response": response},
        **more,
    }


def far(host: PreparedServer, retry_seconds: float = 5.0) -> Endpoint:
    return Endpoint(
        backend="holdfast", url=host.base, target="far", options={"retry_seconds": retry_seconds}
    )


@asynccontextmanager
async def refusing(
    *answers: PreparedResponse, retry_seconds: float = 5.0
) -> AsyncIterator[BackendError]:
    """The error of a turn at a host with these answers."""
    async with prepared_server(*answers) as host:
        with pytest.raises(BackendError) as broken:
            await turn_at(HoldfastFactory(), far(host, retry_seconds))
        yield broken.value


async def test_a_stream_that_is_refused_is_requested_again() -> None:
    bad_gateway = PreparedResponse(b"<html>", 502, "text/html")
    answers = [ACCEPTED, DRAINING, bad_gateway, as_events(finished("hello"))]
    async with prepared_server(*answers) as host:
        result = await turn_at(HoldfastFactory(), far(host))
        assert (result.status, result.response) == (Completed(), "hello")
        assert [method for method, _ in host.asked] == ["POST", "GET", "GET", "GET"]


async def test_a_remote_that_stays_busy_ends_the_run_with_its_error() -> None:
    async with refusing(ACCEPTED, DRAINING, retry_seconds=0.2) as error:
        assert error.code == "draining"
        assert "later" in error.detail


@pytest.mark.parametrize(
    "answers",
    [
        (PreparedResponse(b"<html>welcome</html>", kind="text/html"),),
        (as_json([1, 2]),),
        (as_json(None),),
        (ACCEPTED, as_json({})),
        (ACCEPTED, PreparedResponse(b"id: x\ndata: {}\n\n", kind="text/event-stream")),
        (ACCEPTED, PreparedResponse(b"id: 1\ndata: {nope\n\n", kind="text/event-stream")),
        (ACCEPTED, as_events({"event_type": "run_finish"})),
        (ACCEPTED, as_events(finished("hello", result=7))),
        (ACCEPTED, PreparedResponse(b"", 204), as_json({"run": 7})),
        (PreparedResponse(b"[" * 100_000),),
        (PreparedResponse(b"[" + b"[]," * 200_000 + b"0]"),),
        (ACCEPTED, as_events(finished("hello", parts=[[]] * 200_000))),
    ],
)
async def test_an_answer_outside_the_holdfast_api_is_garbled(
    answers: tuple[PreparedResponse, ...],
) -> None:
    async with refusing(*answers) as error:
        assert error.code == "remote_garbled"


async def test_an_oversized_answer_is_garbled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_ANSWER_BYTES", 1000)
    async with refusing(as_json("x" * 5_000_000)) as error:
        assert error.code == "remote_garbled"


async def test_an_event_of_several_megabytes_is_received() -> None:
    long = "x" * 3_000_000
    async with prepared_server(ACCEPTED, as_events(finished(long))) as host:
        assert (await turn_at(HoldfastFactory(), far(host))).response == long


async def test_images_are_passed_on_to_the_remote() -> None:
    picture = Media("image", Base64Source("image/png", "iVBORw=="), "dot.png")
    async with prepared_server(ACCEPTED, as_events(finished("I see"))) as host:
        await turn_at(HoldfastFactory(), far(host), Text("what is it?"), picture)
        [message] = json.loads(host.bodies[0])["messages"]
        assert message["content"] == [
            {"type": "text", "text": "what is it?"},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
                "title": "dot.png",
            },
        ]


PICTURE = Media("image", Base64Source("image/png", "iVBORw=="), "dot.png")
NEW = Message(
    id=MessageId("m2"),
    role=Role.USER,
    content=(Text("hurry"), PICTURE),
)
BOUND: JsonObject = {"run_id": "there", "thread_id": "t", "after": 0}


def answering(*messages: Message) -> Turn:
    """A turn with the answer to a question, and with messages that were steered meanwhile."""
    answer = DecisionAnswer(action=Action.RESPOND, result="the red one")
    text = Message(id=MessageId("m1"), role=Role.USER, content=(Text("the red one"),))
    new = [text, *messages]
    return Turn(
        agent_id=AgentId("far"),
        run_id=RunId("here"),
        thread_id=ThreadId("thread"),
        key="here:2",
        messages=new,
        new_messages=new,
        binding=BOUND,
        answers=[RemoteAnswer("q1", "d1", answer)],
        messages_besides_answers=messages,
    )


async def executed(host: PreparedServer, turn: Turn) -> BackendResult:
    backend = HoldfastFactory().build(far(host), {})
    try:
        return await backend.execute_root(turn, RecordedTurn())
    finally:
        await backend.aclose()


async def test_messages_between_question_and_answer_reach_the_remote_before_the_answer() -> None:
    async with prepared_server(ACCEPTED, ACCEPTED, as_events(finished("done"))) as host:
        result = await executed(host, answering(NEW))
        assert (result.status, result.response) == (Completed(), "done")
        assert host.asked == [
            ("POST", "/v1/runs/there/inputs"),
            ("POST", "/v1/runs/there/decisions"),
            ("GET", "/v1/runs/there/events"),
        ]
        sent = json.loads(host.bodies[0])
        assert sent["mode"] == "steer"
        [message] = sent["messages"]
        assert [block["type"] for block in message["content"]] == ["text", "image"]


async def test_repeating_a_turn_sends_a_message_under_the_same_key() -> None:
    async with prepared_server(DRAINING, ACCEPTED, ACCEPTED, as_events(finished("done"))) as host:
        await executed(host, answering(NEW))
        keys = [head["idempotency-key"] for head in host.headers[:2]]
        assert keys[0] == keys[1]
    other = replace(NEW, id=MessageId("m3"))
    async with prepared_server(ACCEPTED, ACCEPTED, ACCEPTED, as_events(finished("done"))) as host:
        await executed(host, answering(NEW, other))
        first, second, decided = [head.get("idempotency-key") for head in host.headers[:3]]
        assert first is not None
        assert second is not None
        assert first != second
        assert decided is None


@pytest.mark.parametrize("code", ["run_finished", "not_steerable"])
async def test_messages_for_a_run_that_has_ended_there_start_another_one(code: str) -> None:
    refused = as_json({"code": code, "detail": "no"}, 409)
    async with prepared_server(refused, ACCEPTED, ACCEPTED, as_events(finished("done"))) as host:
        result = await executed(host, answering(NEW))
        assert [path for method, path in host.asked if method == "POST"] == [
            "/v1/runs/there/inputs",
            "/v1/runs/there/decisions",
            "/v1/runs",
        ]
        begun = json.loads(host.bodies[2])
        assert len(begun["messages"]) == 1
        assert result.binding is not None
        assert result.binding["run_id"] == begun["run_id"]


async def test_a_message_that_is_refused_ends_the_turn_before_its_answer() -> None:
    async with prepared_server(as_json({"code": "message_too_large", "detail": "no"}, 413)) as host:
        with pytest.raises(BackendError) as broken:
            await executed(host, answering(NEW))
        assert broken.value.code == "message_too_large"
        assert len(host.asked) == 1


async def test_an_answer_alone_sends_no_message() -> None:
    async with prepared_server(ACCEPTED, as_events(finished("done"))) as host:
        await executed(host, answering())
        assert [path for _, path in host.asked] == [
            "/v1/runs/there/decisions",
            "/v1/runs/there/events",
        ]
