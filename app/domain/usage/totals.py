"""Sums of the usage ledger."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.usage.billed_requests import usd


class UsageGroup(StrEnum):
    """A column by which usage is grouped."""

    AGENT = "agent"
    MODEL = "model"
    PROVIDER = "provider"
    SUBJECT = "subject"
    THREAD = "thread"
    KIND = "kind"
    DAY = "day"


class UsageTotal(Struct, frozen=True, kw_only=True):
    """The sum of some requests. `group` has the values that they share."""

    group: Mapping[str, str] = {}
    requests: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_micros: int | None
    """The cost of the requests with a price; None if none has one."""
    unpriced_requests: int

    @property
    def cost_usd(self) -> float | None:
        return None if self.cost_micros is None else usd(self.cost_micros)

    @property
    def model(self) -> str:
        return self.group[UsageGroup.MODEL]

    @property
    def provider(self) -> str:
        return self.group[UsageGroup.PROVIDER]


class UsageFilter(Struct, frozen=True, kw_only=True):
    """Which rows of the ledger are summed. `begin` is inclusive, `end` exclusive."""

    begin: datetime
    end: datetime
    agent_id: AgentId | None = None
    model: str | None = None
    subject: str | None = None
    thread_id: ThreadId | None = None
    root_run_id: RunId | None = None
