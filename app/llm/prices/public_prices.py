"""The public price list of genai-prices. The package has its data, and no request is sent for it.

Its import takes a fifth of a second, so it runs in a thread, when a price is first needed. Without the package,
no model has a public price.
"""

import asyncio
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import structlog
from msgspec import Struct

from app.domain.usage.billed_requests import MICROS_PER_USD, BilledTokens, Cost

_PACKAGE = "genai_prices"
MAX_UNKNOWN = 1000
"""How many models without a price are remembered. Runs may name any model."""

log = structlog.get_logger(__name__)


class PriceList(Struct, frozen=True):
    """The part of the list where a model is looked up: a provider by its id, or by its base URL."""

    provider_id: str | None = None
    api_url: str | None = None


class PublicPrices:
    """The price list of a process."""

    def __init__(self) -> None:
        self._package: Any = None
        self._is_loaded = False
        self._unknown: set[tuple[PriceList, str]] = set()

    async def load(self) -> None:
        if not self._is_loaded:
            await asyncio.to_thread(self._load)

    def _load(self) -> None:
        if find_spec(_PACKAGE) is not None:
            package = import_module(_PACKAGE)
            # The first lookup builds the list.
            _lookup(package, PriceList("openai"), "gpt-5-mini", BilledTokens(input=1), None)
            self._package = package
        self._is_loaded = True

    def cost(self, where: PriceList, model: str, tokens: BilledTokens, at: datetime) -> Cost | None:
        key = (where, model)
        if self._package is None or key in self._unknown:
            return None
        found = _lookup(self._package, where, model, tokens, at)
        if found is None and len(self._unknown) < MAX_UNKNOWN:
            self._unknown.add(key)
        return found


def _lookup(
    package: Any, where: PriceList, model: str, tokens: BilledTokens, at: datetime | None
) -> Cost | None:
    usage = package.Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write,
    )
    provider = (
        {"provider_api_url": where.api_url}
        if where.api_url is not None
        else {"provider_id": where.provider_id}
    )
    try:
        found = package.calc_price(usage, model, genai_request_timestamp=at, **provider)
    except LookupError:
        return None
    except ValueError as error:
        log.warning("price_not_usable", model=model, error=str(error))
        return None
    total: Decimal = found.total_price
    source = f"genai-prices {package.__version__} {found.provider.id}/{found.model.id}"
    return Cost(round(total * MICROS_PER_USD), source)
