"""The tokens that the Gemini API reports with its events: those of the answer so far."""

from collections.abc import Mapping
from typing import Any

from app.llm.http.answer_parser import token_count
from app.runtime.ports.models import TokenUsage

_PROMPT, _TOOL_PROMPT = "promptTokenCount", "toolUsePromptTokenCount"
_ANSWER, _THOUGHTS, _CACHED = (
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
)
_COUNTS = (_PROMPT, _TOOL_PROMPT, _ANSWER, _THOUGHTS, _CACHED)


class GoogleUsage:
    """The counts of one answer. Each report replaces those before it; a count that it hasn't stays."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._is_reported = False

    def add(self, report: Mapping[str, Any]) -> None:
        self._is_reported = True
        for name in _COUNTS:
            if count := token_count(report.get(name)):
                self._counts[name] = count

    @property
    def has_prompt(self) -> bool:
        """Whether the prompt's tokens are known."""
        return bool(self._of(_PROMPT) or self._of(_TOOL_PROMPT))

    def total(self) -> TokenUsage | None:
        """The usage; None if the provider has reported none."""
        if not self._is_reported:
            return None
        prompt = self._of(_PROMPT) + self._of(_TOOL_PROMPT)
        completion = self._of(_ANSWER) + self._of(_THOUGHTS)
        return TokenUsage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            total_tokens=prompt + completion,
            cache_read_tokens=self._counts.get(_CACHED),
            thinking_tokens=self._counts.get(_THOUGHTS),
        )

    def _of(self, name: str) -> int:
        return self._counts.get(name, 0)
