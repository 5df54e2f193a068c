"""The table `[models.NAME.price]` of an agents file: US dollars for a million tokens."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from app.domain.errors import ConfigurationError
from app.domain.suggestions import did_you_mean
from app.domain.usage.billed_requests import BilledTokens, Cost

PRICED_BY_FILE = "agents file"
_KEYS = ("input", "output", "cache_read", "cache_write")
_MAX_PRICE = 1_000_000


class PriceTable(Struct, frozen=True, kw_only=True):
    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal

    def cost(self, tokens: BilledTokens) -> Cost:
        """Dollars for a million tokens are millionths of a dollar for one."""
        cached = min(tokens.cache_read + tokens.cache_write, tokens.input)
        micros = (
            self.input * (tokens.input - cached)
            + self.cache_read * tokens.cache_read
            + self.cache_write * tokens.cache_write
            + self.output * tokens.output
        )
        return Cost(round(micros), PRICED_BY_FILE)


def price_from_table(where: str, table: Mapping[str, Any]) -> PriceTable:
    """Read the table. Raises `ConfigurationError` that names the key."""
    for key in table:
        if key not in _KEYS:
            raise ConfigurationError(f"{where} has an unknown key; {did_you_mean(key, _KEYS)}")
    for key in ("input", "output"):
        if key not in table:
            raise ConfigurationError(f"{where} needs {key}: US dollars for a million tokens")
    prices = {key: _price(where, key, value) for key, value in table.items()}
    return PriceTable(
        input=prices["input"],
        output=prices["output"],
        cache_read=prices.get("cache_read", prices["input"]),
        cache_write=prices.get("cache_write", prices["input"]),
    )


def _price(where: str, key: str, value: Any) -> Decimal:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= _MAX_PRICE
    ):
        raise ConfigurationError(
            f"{where} {key} must be US dollars for a million tokens, from 0 to {_MAX_PRICE}"
        )
    return Decimal(str(value))
