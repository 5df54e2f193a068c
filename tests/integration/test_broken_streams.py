"""Runs against a real wire that breaks: our own adapter, a provider in another process, and its chaos."""

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
from tests.support.house import Replica, an_agent, of_type, replica, texts_of
from tests.support.probes import Probe
from tests.support.providers import FakeProvider, fake_provider

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
async def house_with(
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
    async with replica(url, an_agent(*tools, **spec), models) as house:
        yield house
    await models.aclose()


@pytest.mark.parametrize("chaos", ["cut", "early-end", "malformed", "error"])
async def test_an_answer_that_breaks_is_whole_in_the_log(
    database_url: str, provider: FakeProvider, chaos: str
) -> None:
    async with house_with(database_url, provider) as house:
        run = await house.start(f"CHAOS {chaos}")
        said = await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 8)]
    assert said[-1]["termination"] == {"type": "natural_end"}
    assert of_type(said, "stream_reset") == []


async def test_the_adapters_own_patience_may_be_the_shorter(
    database_url: str, provider: FakeProvider
) -> None:
    async with house_with(database_url, provider, idle_timeout=0.2) as house:
        run = await house.start("CHAOS stall")
        await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 8)]


@pytest.mark.parametrize("wire", ["openai", "anthropic", "google"])
async def test_a_stall_is_noticed_on_every_wire_and_its_socket_closed(
    database_url: str, provider: FakeProvider, wire: str
) -> None:
    before = provider.stats().closed_early
    impatient = RetryPolicy(stream_idle_timeout=0.3, max_backoff=0.02)
    async with house_with(database_url, provider, wire=wire, retry=impatient) as house:
        run = await house.start("CHAOS stall")
        await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 8)]
    assert provider.stats(closed_early=before + 1).closed_early == before + 1


@pytest.mark.parametrize("chaos", ["500", "503", "429-soon"])
async def test_a_refusal_is_asked_again(
    database_url: str, provider: FakeProvider, chaos: str
) -> None:
    before = provider.stats().requests
    async with house_with(database_url, provider) as house:
        run = await house.start(f"CHAOS {chaos} once")
        await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 5)]
    assert provider.stats().requests == before + 2


async def test_a_refusal_with_a_date_suspends_the_run_until_then(
    database_url: str, provider: FakeProvider
) -> None:
    before = provider.stats().requests
    async with house_with(database_url, provider) as house:
        run = await house.start("CHAOS 429-date")
        await run.finished()
        record = await run.now()
    assert isinstance(record.state, Waiting)
    assert record.state.reason is WaitingReason.RATE_LIMIT
    assert record.state.until is not None
    assert record.state.until > record.updated_at + timedelta(seconds=3500)
    assert provider.stats().requests == before + 1


async def test_calls_that_came_whole_before_a_cut_are_run(
    database_url: str, provider: FakeProvider
) -> None:
    probe = Probe()
    before = provider.stats().requests
    async with house_with(database_url, provider, probe.tool) as house:
        run = await house.start('CHAOS cut-in-calls CALLS 2 probe {"text": "this"}')
        said = await run.finished()
        state = (await run.now()).state
    assert [handed.text for handed in probe.handed] == ["this"]
    assert len(of_type(said, "tool_call_cancel")) == 1
    assert isinstance(state, Done)
    assert state.termination == NaturalEnd()
    assert provider.stats().requests == before + 2


async def test_an_answer_cut_by_its_length_is_continued(
    database_url: str, provider: FakeProvider
) -> None:
    async with house_with(database_url, provider) as house:
        run = await house.start("STOP length")
        said = await run.finished()
        assert texts_of(await run.log())[1:] == [("assistant", WORD * 10)]
    [complete] = of_type(said, "inference_complete")
    assert complete["usage"]["completion_tokens"] == 10


async def test_cancelling_a_long_answer_closes_the_socket_and_keeps_the_text(
    database_url: str, provider: FakeProvider
) -> None:
    before = provider.stats().closed_early
    async with house_with(database_url, provider, model="fake-5000-20ms") as house:
        run = await house.start("hello")
        await run.until("text_delta")
        await run.cancel("enough")
        await run.finished()
        kept = (await run.log())[1].message
    assert kept.text.startswith(WORD)
    assert kept.cut_short is TruncationReason.CANCELLED
    assert provider.stats(closed_early=before + 1).closed_early >= before + 1
