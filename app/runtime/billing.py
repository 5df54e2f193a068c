"""The requests to models that no checkpoint has written to the usage ledger yet, and the run's cost."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from app import telemetry
from app.domain.ids import AgentId
from app.domain.structs import replace
from app.domain.usage.billed_requests import BilledRequest, BilledTokens, UsageKind
from app.runtime.ports.models import TokenUsage
from app.runtime.ports.prices import Prices


class _Unpriced(Struct, frozen=True):
    request: BilledRequest
    prices: Prices
    at: datetime
    label: str


def billed_tokens(usage: TokenUsage) -> BilledTokens:
    """The tokens that a provider reported.

    Some servers leave reasoning out of the completion's tokens; then only the total has it.
    """
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return BilledTokens(
        input=prompt,
        output=max(completion, (usage.total_tokens or 0) - prompt),
        cache_read=min(usage.cache_read_tokens or 0, prompt),
        cache_write=min(usage.cache_creation_tokens or 0, prompt),
        reasoning=usage.thinking_tokens or 0,
    )


class Billing:
    """Numbers and prices the requests of one execution."""

    def __init__(self, cost_micros: int, unpriced_requests: int) -> None:
        self._saved_micros, self._saved_unpriced = cost_micros, unpriced_requests
        self._requests = 0
        self._new: list[_Unpriced] = []
        self._priced: list[BilledRequest] = []

    @property
    def cost_micros(self) -> int:
        """The run's cost up to the last `priced`, as far as prices are known."""
        new = sum(each.cost.micros for each in self._priced if each.cost is not None)
        return self._saved_micros + new

    @property
    def unpriced_requests(self) -> int:
        """The number of the run's requests to models without a price."""
        return self._saved_unpriced + sum(each.cost is None for each in self._priced)

    def add(
        self,
        usage: TokenUsage,
        *,
        model: str,
        label: str,
        kind: UsageKind,
        agent_id: AgentId,
        step_index: int,
        prices: Prices,
        at: datetime,
    ) -> None:
        """Add a request. `model` is the provider's name of the model, `label` the configured model's."""
        self._requests += 1
        request = BilledRequest(
            number=self._requests,
            step_index=step_index,
            agent_id=agent_id,
            model=model,
            provider=prices.provider,
            kind=kind,
            tokens=billed_tokens(usage),
        )
        self._new.append(_Unpriced(request, prices, at, label))

    async def priced(self) -> tuple[BilledRequest, ...]:
        """The requests for the next checkpoint, with their costs."""
        new, self._new = self._new, []
        for each in new:
            await each.prices.load()
            cost = each.prices.cost(each.request.model, each.request.tokens, each.at)
            if cost is None:
                telemetry.unpriced_requests.labels(each.label).inc()
            self._priced.append(replace(each.request, cost=cost))
        return tuple(self._priced)

    def saved(self, requests: Sequence[BilledRequest]) -> None:
        """A checkpoint wrote these requests."""
        for request in requests:
            if request.cost is None:
                self._saved_unpriced += 1
            else:
                self._saved_micros += request.cost.micros
        del self._priced[: len(requests)]
