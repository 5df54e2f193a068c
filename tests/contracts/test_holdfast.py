"""Another Holdfast where it is rough: it is busy, isn't one, says more than is good, or is shown a picture."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.backends.base import BackendError
from app.backends.remote_holdfast import responses
from app.backends.remote_holdfast.backend import HoldfastFactory
from app.domain.agents.backend_results import Completed
from app.domain.agents.endpoints import Endpoint
from app.domain.threads.messages import Base64Source, Media, Text
from tests.support.rough_host import Ready, RoughHost, as_events, as_json, rough_host
from tests.support.turns import turn_at

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


def far(host: RoughHost, patience: float = 5.0) -> Endpoint:
    return Endpoint(
        backend="holdfast", url=host.base, target="far", options={"retry_seconds": patience}
    )


@asynccontextmanager
async def refusing(*answers: Ready, patience: float = 5.0) -> AsyncIterator[BackendError]:
    """What a turn there breaks off with."""
    async with rough_host(*answers) as host:
        with pytest.raises(BackendError) as broken:
            await turn_at(HoldfastFactory(), far(host, patience))
        yield broken.value


async def test_a_stream_that_is_refused_for_a_while_is_asked_for_again() -> None:
    bad_gateway = Ready(b"<html>", 502, "text/html")
    answers = [ACCEPTED, DRAINING, bad_gateway, as_events(finished("hello"))]
    async with rough_host(*answers) as host:
        result = await turn_at(HoldfastFactory(), far(host))
        assert (result.status, result.response) == (Completed(), "hello")
        assert [method for method, _ in host.asked] == ["POST", "GET", "GET", "GET"]


async def test_one_that_stays_busy_ends_the_run_with_its_own_words() -> None:
    async with refusing(ACCEPTED, DRAINING, patience=0.2) as error:
        assert error.code == "draining"
        assert "later" in error.detail


@pytest.mark.parametrize(
    "answers",
    [
        (Ready(b"<html>welcome</html>", kind="text/html"),),
        (as_json([1, 2]),),
        (as_json(None),),
        (ACCEPTED, as_json({})),
        (ACCEPTED, Ready(b"id: x\ndata: {}\n\n", kind="text/event-stream")),
        (ACCEPTED, Ready(b"id: 1\ndata: {nope\n\n", kind="text/event-stream")),
        (ACCEPTED, as_events({"event_type": "run_finish"})),
        (ACCEPTED, as_events(finished("hello", result=7))),
        (ACCEPTED, Ready(b"", 204), as_json({"run": 7})),
        (Ready(b"[" * 100_000),),
        (Ready(b"[" + b"[]," * 200_000 + b"0]"),),
        (ACCEPTED, as_events(finished("hello", parts=[[]] * 200_000))),
    ],
)
async def test_what_doesnt_answer_as_a_holdfast_does_is_named_as_that(
    answers: tuple[Ready, ...],
) -> None:
    async with refusing(*answers) as error:
        assert error.code == "remote_garbled"


async def test_an_answer_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MAX_ANSWER_BYTES", 1000)
    async with refusing(as_json("x" * 5_000_000)) as error:
        assert error.code == "remote_garbled"


async def test_an_event_of_several_megabytes_is_heard() -> None:
    long = "x" * 3_000_000
    async with rough_host(ACCEPTED, as_events(finished(long))) as host:
        assert (await turn_at(HoldfastFactory(), far(host))).response == long


async def test_what_is_said_in_pictures_is_passed_on() -> None:
    picture = Media("image", Base64Source("image/png", "iVBORw=="), "dot.png")
    async with rough_host(ACCEPTED, as_events(finished("I see"))) as host:
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
