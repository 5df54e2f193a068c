"""Billed requests: the rows of the usage ledger, one for each request to a model that its provider bills.

`input` counts all tokens of the prompt, also those read from the provider's cache and written to it. `output`
counts all generated tokens, also those of the model's reasoning. Cost is in millionths of a US dollar.
"""

from enum import StrEnum

from msgspec import Struct

from app.domain.ids import AgentId

MICROS_PER_USD = 1_000_000


class UsageKind(StrEnum):
    """Why the model was asked."""

    INFERENCE = "inference"
    SUMMARY = "summary"


class BilledTokens(Struct, frozen=True, kw_only=True):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Cost(Struct, frozen=True):
    """The cost of one request, and the price table that it is from."""

    micros: int
    priced_by: str


class BilledRequest(Struct, frozen=True, kw_only=True):
    """A request to a model. `number` counts the requests of one execution of the run."""

    number: int
    step_index: int
    agent_id: AgentId
    model: str
    provider: str
    kind: UsageKind
    tokens: BilledTokens
    cost: Cost | None = None
    """None if the model has no known price."""


def usd(micros: int) -> float:
    return micros / MICROS_PER_USD
