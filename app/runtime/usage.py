"""What a run may use, and what it has used of that: counted here, durable with each save."""

from collections.abc import Iterable
from typing import Any

from app.domain.ids import CallId
from app.domain.json_values import JsonObject
from app.domain.runs.limits import RAISED, USED, Amount, Limit, RunLimits, limits_of, used_by
from app.domain.runs.runs import RunRecord


class UsageMeter:
    """Steps and tokens are counted where they are spent; tool calls, and what was spent before, here."""

    def __init__(self, record: RunRecord) -> None:
        before = used_by(record)
        self.limits: RunLimits = limits_of(record)
        self.tool_calls = before.tool_calls
        self.seconds_before: float = before.wall_seconds
        """Spent executing before this worker began."""
        self.lost_ms = round(record.lost_seconds * 1000)
        """How much of that lost workers have spent."""
        self._promised: set[CallId] = set()

    def raise_limit(self, limit: Limit, by: Amount) -> None:
        self.limits = self.limits.raised_by(limit, by)

    def raise_once(self, call_id: CallId) -> bool:
        """Keep one tool call free for this one; False when none is left.

        Promised calls count once they begin: calls that run side by side are all judged before.
        """
        allowed = self.limits.of(Limit.TOOL_CALLS)
        others = self._promised - {call_id}
        if allowed is not None and self.tool_calls + len(others) >= allowed:
            return False
        self._promised.add(call_id)
        return True

    def begin(self, call_ids: Iterable[CallId]) -> None:
        """The calls go to their tools; those that weren't promised have been counted before."""
        for call_id in call_ids:
            if call_id in self._promised:
                self._promised.discard(call_id)
                self.tool_calls += 1

    def to_state(self) -> JsonObject:
        """What the run's state keeps of it."""
        state: dict[str, Any] = {}
        if self.limits.raised:
            state[RAISED] = {limit.value: amount for limit, amount in self.limits.raised.items()}
        if self.tool_calls:
            state[USED] = {"tool_calls": self.tool_calls}
        return state
