"""The tokens that the Messages API reports: those of the prompt first, those of the answer at its end."""

from collections.abc import Mapping
from typing import Any

from app.llm.http.answer_parser import token_count
from app.runtime.ports.models import TokenUsage

_INPUT, _OUTPUT = "input_tokens", "output_tokens"
_READ, _WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
_COUNTS = (_INPUT, _OUTPUT, _READ, _WRITTEN)


class ReportedUsage:
    """The counts of one answer. Each report replaces those before it."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._compaction: dict[str, int] = {}
        self._thinking: int | None = None

    def add(self, report: Mapping[str, Any]) -> None:
        for name in _COUNTS:
            if (count := token_count(report.get(name))) is not None:
                self._counts[name] = count
        details = report.get("output_tokens_details") or {}
        self._thinking = token_count(details.get("thinking_tokens")) or self._thinking
        # The totals leave out what a summary on the server took.
        compactions = [
            each for each in report.get("iterations") or () if each.get("type") == "compaction"
        ]
        if compactions:
            self._compaction = {
                name: sum(token_count(each.get(name)) or 0 for each in compactions)
                for name in _COUNTS
            }

    def so_far(self) -> TokenUsage | None:
        """The usage that is known before the end; None if the prompt's tokens aren't."""
        return self.total() if self._of(_INPUT) or self._of(_READ) else None

    def total(self) -> TokenUsage | None:
        """The usage; None if the provider has reported none. The prompt's tokens include those of the cache."""
        if not self._counts:
            return None
        read, written = self._of(_READ), self._of(_WRITTEN)
        prompt, completion = self._of(_INPUT) + read + written, self._of(_OUTPUT)
        return TokenUsage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            total_tokens=prompt + completion,
            cache_read_tokens=read or None,
            cache_creation_tokens=written or None,
            thinking_tokens=self._thinking,
        )

    def _of(self, name: str) -> int:
        return self._counts.get(name, 0) + self._compaction.get(name, 0)
