"""Prices of models: the agents file first, then the public list."""

from decimal import Decimal
from typing import Any

import pytest

from app.clock import SystemClock
from app.domain.errors import ConfigurationError
from app.domain.usage.billed_requests import BilledTokens, Cost
from app.llm.catalog import ModelCatalog
from app.llm.price_table import PRICED_BY_FILE, PriceTable, price_from_table
from app.llm.prices.public_prices import PublicPrices
from app.llm.specs import ModelSpec, spec_from_table
from app.runtime.billing import billed_tokens
from app.runtime.ports.models import TokenUsage

pytestmark = pytest.mark.anyio

AT = SystemClock().now()
TOKENS = BilledTokens(input=1000, output=100, cache_read=600, cache_write=100)


def spec(name: str, **more: Any) -> ModelSpec:
    return spec_from_table(name, {"provider": "openai", "model": "gpt-5-mini", **more})


async def cost_of(
    model: str, *specs: ModelSpec, name: str = "x", tokens: BilledTokens = TOKENS
) -> Cost | None:
    prices = ModelCatalog(specs, {}).prices(name)
    await prices.load()
    return prices.cost(model, tokens, AT)


async def test_a_price_of_the_file_counts_each_kind_of_token_once() -> None:
    price = {"input": 2, "output": 10, "cache_read": 0.5, "cache_write": 2.5}
    found = await cost_of("gpt-5-mini", spec("x", price=price))
    assert found == Cost(300 * 2 + 300 + 250 + 1000, PRICED_BY_FILE)


async def test_tokens_of_the_cache_cost_as_much_as_others_by_default() -> None:
    price = {"input": 2, "output": 10}
    found = await cost_of("gpt-5-mini", spec("x", price=price))
    assert found == Cost(3000, PRICED_BY_FILE)


async def test_models_of_one_endpoint_share_their_prices() -> None:
    one = spec("x", price={"input": 1, "output": 1})
    other = spec("y", model="house-model", price={"input": 3, "output": 3})
    elsewhere = spec(
        "z", model="far-model", base_url="http://far/v1", price={"input": 9, "output": 9}
    )
    assert await cost_of("house-model", one, other, elsewhere) == Cost(3300, PRICED_BY_FILE)
    assert await cost_of("far-model", one, other, elsewhere) is None


async def test_a_model_without_a_price_of_the_file_has_its_public_price() -> None:
    found = await cost_of("gpt-5-mini", spec("x"), tokens=BilledTokens(input=1_000_000))
    assert found is not None
    assert found.micros > 0
    assert found.priced_by.startswith("genai-prices ")
    assert found.priced_by.endswith(" openai/gpt-5-mini")


async def test_the_public_price_of_a_server_is_found_by_its_address() -> None:
    deepseek = spec("x", model="deepseek-chat", base_url="https://api.deepseek.com/v1")
    at_home = spec("x", model="deepseek-chat", base_url="http://127.0.0.1:9/v1")
    assert await cost_of("deepseek-chat", deepseek) is not None
    assert await cost_of("deepseek-chat", at_home) is None


@pytest.mark.parametrize(
    "table",
    [
        {"provider": "anthropic", "model": "claude-sonnet-4-5"},
        {"provider": "google", "model": "gemini-2.5-flash"},
        {"provider": "openai-responses", "model": "gpt-5-mini"},
        {"provider": "pydantic-ai", "model": "anthropic:claude-sonnet-4-5"},
    ],
    ids=lambda table: table["provider"],
)
async def test_providers_are_found_in_the_public_list(table: dict[str, str]) -> None:
    model = table["model"].rpartition(":")[2]
    found = await cost_of(model, spec_from_table("x", table))
    assert found is not None
    cached = await cost_of(
        model, spec_from_table("x", table), tokens=BilledTokens(input=1000, cache_read=1000)
    )
    full = await cost_of(model, spec_from_table("x", table), tokens=BilledTokens(input=1000))
    assert cached is not None
    assert full is not None
    assert cached.micros < full.micros


async def test_an_unknown_model_has_no_price() -> None:
    assert await cost_of("gpt-nobody-knows", spec("x")) is None
    assert await cost_of("gpt-5-mini", spec("x"), name="missing") is None


@pytest.mark.parametrize(
    "table, problem",
    [
        ({"input": 1}, "needs output"),
        ({"output": 1}, "needs input"),
        ({"input": -1, "output": 1}, "input must be"),
        ({"input": True, "output": 1}, "input must be"),
        ({"input": "1", "output": 1}, "input must be"),
        ({"input": float("nan"), "output": 1}, "input must be"),
        ({"input": float("inf"), "output": 1}, "input must be"),
        ({"input": 1, "output": 1, "cache_reads": 1}, "cache_read"),
    ],
)
def test_a_wrong_price_is_refused(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        price_from_table("[models.x.price]", table)


def test_a_price_table_is_read_exactly() -> None:
    read = price_from_table("[models.x.price]", {"input": 0.1, "output": 0.3})
    assert read == PriceTable(
        input=Decimal("0.1"),
        output=Decimal("0.3"),
        cache_read=Decimal("0.1"),
        cache_write=Decimal("0.1"),
    )


@pytest.mark.parametrize(
    "usage, tokens",
    [
        (TokenUsage(), BilledTokens()),
        (
            TokenUsage(prompt_tokens=10, completion_tokens=5, total_tokens=15, thinking_tokens=2),
            BilledTokens(input=10, output=5, reasoning=2),
        ),
        # A server that leaves reasoning out of the completion's tokens.
        (
            TokenUsage(prompt_tokens=10, completion_tokens=5, total_tokens=22, thinking_tokens=7),
            BilledTokens(input=10, output=12, reasoning=7),
        ),
        (
            TokenUsage(prompt_tokens=10, cache_read_tokens=12, cache_creation_tokens=3),
            BilledTokens(input=10, cache_read=10, cache_write=3),
        ),
    ],
)
def test_output_has_the_reasoning_and_the_cache_is_part_of_the_input(
    usage: TokenUsage, tokens: BilledTokens
) -> None:
    assert billed_tokens(usage) == tokens


@pytest.mark.parametrize(
    "address, is_loaded",
    [
        ("http://127.0.0.1:11434/v1", False),
        ("http://[::1]/v1", False),
        ("http://vllm:8000/v1", False),
        ("https://api.groq.com/openai/v1", True),
    ],
)
async def test_the_public_prices_are_not_loaded_for_a_server_of_ones_own(
    address: str, is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[PublicPrices] = []

    async def load(self: PublicPrices) -> None:
        loads.append(self)

    monkeypatch.setattr(PublicPrices, "load", load)
    await ModelCatalog([spec("x", base_url=address)], {}).load_prices()
    assert bool(loads) is is_loaded
