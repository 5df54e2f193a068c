"""Runs against connections that break: our own adapter, and a provider process that injects faults."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from app.domain.inference.options import RetryPolicy
from app.domain.runs.runs import Done, Waiting, WaitingReason
from app.domain.runs.terminations import NaturalEnd
from app.domain.threads.messages import TruncationReason
from app.llm.catalog import ModelCatalog
from app.llm.specs import ModelSpec
from tests.support.fake_answers import WORD
from tests.support.probes import Probe
from tests.support.providers import FakeProvider, fake_provider
from tests.support.replicas import Replica, an_agent, of_type, open_replica, texts_of

pytestmark = [
    pytest.mark.anyio,
    # Google's SDK, when it is compiled for the first time.
    pytest.mark.filterwarnings("ignore:.*invalid escape sequence"),
]


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running


@asynccontextmanager
async def replica_with(
    url: str,
    provider: FakeProvider,
    *tools: Any,
    model: str = "fake-5",
    wire: str = "openai",
    **spec: Any,
) -> AsyncIterator[Replica]:
    settings = ModelSpec(
        name="scripted",
        provider=wire,
        model=model,
        base_url=provider.base_url if wire == "openai" else provider.origin,
        api_key="sk-very-secret-key",
        idle_timeout=spec.pop("idle_timeout", 20.0),
    )
    models = ModelCatalog([settings], {})
    async with open_replica(url, an_agent(*tools, **spec), models) as replica:
        yield replica
    await models.aclose()


@pytest.mark.parametrize("chaos", ["cut", "early-end", "malformed", "error"])
async def test_an_interrupted_answer_is_complete_in_the_log(
    database_url: str, provider: FakeProvider, chaos: str
) -> None:
    async with replica_with(database_url, provider) as replica:
        run = await replica.start(f"CHAOS {chaos}")
        emitted = await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 8)]
    assert emitted[-1]["termination"] == {"type": "natural_end"}
    assert of_type(emitted, "stream_reset") == []


async def test_the_adapters_own_timeout_may_be_shorter_than_the_runtimes(
    database_url: str, provider: FakeProvider
) -> None:
    async with replica_with(database_url, provider, idle_timeout=0.2) as replica:
        run = await replica.start("CHAOS stall")
        await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 8)]


@pytest.mark.parametrize("wire", ["openai", "anthropic", "google"])
async def test_a_stalled_stream_is_detected_on_every_protocol_and_its_socket_closed(
    database_url: str, provider: FakeProvider, wire: str
) -> None:
    before = provider.stats().closed_early
    impatient = RetryPolicy(stream_idle_timeout=0.3, max_backoff=0.02)
    async with replica_with(database_url, provider, wire=wire, retry=impatient) as replica:
        run = await replica.start("CHAOS stall")
        await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 8)]
    assert provider.stats(closed_early=before + 1).closed_early == before + 1


@pytest.mark.parametrize("wire", ["openai", "anthropic", "google"])
async def test_a_model_that_says_nothing_is_asked_again_after_the_idle_timeout(
    database_url: str, provider: FakeProvider, wire: str
) -> None:
    impatient = RetryPolicy(
        stream_idle_timeout=0.5, max_retries=2, backoff_base=0.02, max_backoff=0.04
    )
    began = time.monotonic()
    async with replica_with(database_url, provider, wire=wire, retry=impatient) as replica:
        run = await replica.start("CHAOS silent")
        emitted = await run.finished()
        seconds = time.monotonic() - began
    retries = [
        (one["attempt"], one["reason"], one["wait_ms"])
        for one in of_type(emitted, "inference_retry")
    ]
    assert retries == [(2, "timeout", 20), (3, "timeout", 40)]
    assert of_type(emitted, "stream_reset") == []
    assert emitted[-1]["termination"] == {
        "type": "error",
        "code": "timeout",
        "detail": "the model said nothing for 0.5 s",
    }
    assert seconds > 3 * 0.5 + 0.06
    assert seconds < 30, "the time-out of the adapter was waited for"


@pytest.mark.parametrize("chaos", ["500", "503", "429-soon"])
async def test_a_refused_request_is_retried(
    database_url: str, provider: FakeProvider, chaos: str
) -> None:
    before = provider.stats().requests
    async with replica_with(database_url, provider) as replica:
        run = await replica.start(f"CHAOS {chaos} once")
        await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 5)]
    assert provider.stats().requests == before + 2


async def test_a_refusal_with_a_retry_date_suspends_the_run_until_then(
    database_url: str, provider: FakeProvider
) -> None:
    before = provider.stats().requests
    async with replica_with(database_url, provider) as replica:
        run = await replica.start("CHAOS 429-date")
        await run.finished()
        record = await run.now()
    assert isinstance(record.state, Waiting)
    assert record.state.reason is WaitingReason.RATE_LIMIT
    assert record.state.until is not None
    assert record.state.until > record.updated_at + timedelta(seconds=3500)
    assert provider.stats().requests == before + 1


async def test_complete_tool_calls_before_a_broken_connection_are_run(
    database_url: str, provider: FakeProvider
) -> None:
    probe = Probe()
    before = provider.stats().requests
    async with replica_with(database_url, provider, probe.tool) as replica:
        run = await replica.start('CHAOS cut-in-calls CALLS 2 probe {"text": "this"}')
        emitted = await run.finished()
        state = (await run.now()).state
    assert [handed.text for handed in probe.handed] == ["this"]
    assert len(of_type(emitted, "tool_call_cancel")) == 1
    assert isinstance(state, Done)
    assert state.termination == NaturalEnd()
    assert provider.stats().requests == before + 2


async def test_an_answer_truncated_at_the_token_limit_is_continued(
    database_url: str, provider: FakeProvider
) -> None:
    async with replica_with(database_url, provider) as replica:
        run = await replica.start("STOP length")
        emitted = await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 10)]
    [complete] = of_type(emitted, "inference_complete")
    assert complete["usage"]["completion_tokens"] == 10


async def test_cancelling_a_long_answer_closes_the_socket_and_keeps_the_text(
    database_url: str, provider: FakeProvider
) -> None:
    before = provider.stats().closed_early
    async with replica_with(database_url, provider, model="fake-5000-20ms") as replica:
        run = await replica.start("hello")
        await run.until("text_delta")
        await run.cancel("enough")
        await run.finished()
        message = (await run.log())[1].message
    assert message.text.startswith(WORD)
    assert message.cut_short is TruncationReason.CANCELLED
    assert provider.stats(closed_early=before + 1).closed_early >= before + 1
