"""The limits of a run and its usage; each save stores them."""

from collections.abc import Iterable
from typing import Any

from app.domain.ids import CallId
from app.domain.json_values import JsonObject
from app.domain.runs.limits import (
    RAISED,
    USED,
    Amount,
    Limit,
    RunLimits,
    cost_micros_of,
    limits_of,
    unpriced_requests_of,
    used_by,
)
from app.domain.runs.runs import RunRecord


class UsageMeter:
    """Counts tool calls, and keeps the usage of earlier activations. Steps and tokens are counted by the run."""

    def __init__(self, record: RunRecord) -> None:
        before = used_by(record)
        self.limits: RunLimits = limits_of(record)
        self.tool_calls = before.tool_calls
        self.cost_micros = cost_micros_of(record)
        self.unpriced_requests = unpriced_requests_of(record)
        self.seconds_before: float = before.wall_seconds
        """Seconds of execution before this activation."""
        self.lost_ms = round(record.lost_seconds * 1000)
        """The part of it that lost workers spent."""
        self._reserved: set[CallId] = set()

    def raise_limit(self, limit: Limit, by: Amount) -> None:
        self.limits = self.limits.raised_by(limit, by)

    def reserve_call(self, call_id: CallId) -> bool:
        """Reserve one tool call of the limit; False if none is left.

        A reserved call is counted when it begins, because parallel calls all pass the gate before that.
        """
        allowed = self.limits.of(Limit.TOOL_CALLS)
        others = self._reserved - {call_id}
        if allowed is not None and self.tool_calls + len(others) >= allowed:
            return False
        self._reserved.add(call_id)
        return True

    def count_cost(self, micros: int, unpriced_requests: int) -> None:
        """Set the run's cost so far, and the number of its requests to models without a price."""
        self.cost_micros, self.unpriced_requests = micros, unpriced_requests

    def begin(self, call_ids: Iterable[CallId]) -> None:
        """Count reserved calls that are handed to their tools; other calls were counted before."""
        for call_id in call_ids:
            if call_id in self._reserved:
                self._reserved.discard(call_id)
                self.tool_calls += 1

    def to_state(self) -> JsonObject:
        """The entries of the run's state."""
        state: dict[str, Any] = {}
        if self.limits.raised:
            state[RAISED] = {limit.value: amount for limit, amount in self.limits.raised.items()}
        has_cost_limit = Limit.COST_USD in self.limits.requested
        used = {
            "tool_calls": self.tool_calls,
            "cost_micros": self.cost_micros,
            # Only a limit of the cost needs it.
            "unpriced_requests": self.unpriced_requests if has_cost_limit else 0,
        }
        if any(used.values()):
            state[USED] = {name: count for name, count in used.items() if count}
        return state
