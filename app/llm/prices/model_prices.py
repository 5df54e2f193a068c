"""The prices of one configured model: its table in the agents file, else the public price list."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from app.domain.usage.billed_requests import BilledTokens, Cost
from app.llm.price_table import PriceTable
from app.llm.prices.public_prices import PriceList, PublicPrices
from app.llm.specs import SCRIPTED, ModelSpec

_IDS_IN_LIST: Mapping[str, str] = {
    "openai-compatible": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "google-gla": "google",
    "google-cloud": "google",
    "google-vertex": "google",
    "bedrock": "aws",
    "xai": "x-ai",
}
"""Providers that have another id in the price list."""


class ModelPrices:
    """`tables` has the models of the same endpoint that have a price in the agents file."""

    def __init__(
        self,
        provider: str,
        tables: Mapping[str, PriceTable],
        list_: PriceList | None,
        public: PublicPrices,
    ) -> None:
        self.provider = provider
        self._tables = tables
        self._list = list_
        self._public = public

    async def load(self) -> None:
        if self._list is not None:
            await self._public.load()

    def cost(self, model: str, tokens: BilledTokens, at: datetime) -> Cost | None:
        table = self._tables.get(model)
        if table is not None:
            return table.cost(tokens)
        if self._list is None:
            return None
        return self._public.cost(self._list, model, tokens, at)


class ScriptedPrices:
    """A scripted model has the price of its table, or none."""

    provider = SCRIPTED

    def __init__(self, table: PriceTable | None) -> None:
        self._table = table

    async def load(self) -> None:
        return

    def cost(self, model: str, tokens: BilledTokens, at: datetime) -> Cost | None:
        return None if self._table is None else self._table.cost(tokens)


def prices_of(
    spec: ModelSpec, specs: Sequence[ModelSpec], public: PublicPrices
) -> ModelPrices | ScriptedPrices:
    """The prices of a model. Models of the same provider and address share their tables."""
    if spec.provider == SCRIPTED:
        return ScriptedPrices(spec.price)
    provider, _, model = spec.model.partition(":")
    if spec.provider != "pydantic-ai":
        provider, model = spec.provider, spec.model
    same = [each for each in specs if _endpoint(each) == _endpoint(spec)]
    tables = {_model(each): each.price for each in same if each.price is not None}
    if spec.price is not None:
        tables[model] = spec.price
    return ModelPrices(provider, tables, _price_list(spec, provider), public)


def _endpoint(spec: ModelSpec) -> tuple[str, str | None]:
    return spec.provider, spec.base_url


def _model(spec: ModelSpec) -> str:
    return spec.model.partition(":")[2] if spec.provider == "pydantic-ai" else spec.model


def _price_list(spec: ModelSpec, provider: str) -> PriceList | None:
    """An OpenAI-compatible server is found by its address: it may be of any provider, or of none.

    A server of your own network is in no list, so the list, which takes 10 MB, isn't loaded for it.
    """
    known = _IDS_IN_LIST.get(provider, provider)
    if known == "openai" and spec.base_url is not None:
        return None if _is_private(spec.base_url) else PriceList(api_url=spec.base_url)
    return PriceList(known)


def _is_private(address: str) -> bool:
    """Whether the host is an IP address, or a name that only a local network knows."""
    host = urlsplit(address).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return "." not in host
    return True
