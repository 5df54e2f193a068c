"""The beginning of a large result: converting all of it, to show a part, would hold the loop up."""

from typing import Any

_BYTES_PER_VALUE = 2
"""Of JSON, at least: the value and what divides it from the next."""
_NUMBERS = frozenset({int, float, bool, type(None)})


class Beginning:
    """Copies lists, objects and texts as far as their JSON can be within a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        # A bit more than fits, so that a beginning is never taken for the whole.
        self._left = max_bytes + 2 * _BYTES_PER_VALUE
        self.is_whole = True

    def of(self, value: Any) -> Any:
        self._left -= _BYTES_PER_VALUE
        if isinstance(value, str):
            return self._of_text(value)
        if type(value) is dict:
            copy = {}
            for name, item in value.items():
                if self._is_full():
                    break
                self._left -= len(name) if isinstance(name, str) else 0
                copy[name] = self.of(item)
            return copy
        if type(value) in (list, tuple):
            items = []
            for item in value:
                if self._is_full():
                    break
                if type(item) in _NUMBERS:
                    self._left -= _BYTES_PER_VALUE
                    items.append(item)
                else:
                    items.append(self.of(item))
            return items
        return value

    def _of_text(self, text: str) -> str:
        if len(text) > self._left:
            self.is_whole = False
            text = text[: max(0, self._left)]
        self._left -= len(text)
        return text

    def _is_full(self) -> bool:
        if self._left > 0:
            return False
        self.is_whole = False
        return True
