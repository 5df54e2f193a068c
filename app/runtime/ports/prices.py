"""Prices: what a request to a model costs."""

from datetime import datetime
from typing import Protocol

from app.domain.usage.billed_requests import BilledTokens, Cost


class Prices(Protocol):
    """The prices of one configured model, and of other models of its provider."""

    @property
    def provider(self) -> str:
        """The provider's name in the ledger."""

    async def load(self) -> None:
        """Load the price tables outside of the event loop. Does nothing if they are loaded."""

    def cost(self, model: str, tokens: BilledTokens, at: datetime) -> Cost | None:
        """The cost of one request to that model; None if no table has it. Tables are loaded."""


class _NoPrices:
    """The prices of a model that no table has."""

    provider = ""

    async def load(self) -> None:
        return

    def cost(self, model: str, tokens: BilledTokens, at: datetime) -> Cost | None:
        return None


NO_PRICES: Prices = _NoPrices()
