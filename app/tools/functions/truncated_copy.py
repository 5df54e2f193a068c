"""The beginning of a large result. Converting all of it to show a part would block the event loop."""

from typing import Any

_BYTES_PER_VALUE = 2
"""Minimum JSON size of a value: one byte, and the separator before the next value."""
_NUMBERS = frozenset({int, float, bool, type(None)})


class TruncatedCopy:
    """Copies lists, objects and texts until their JSON exceeds a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        # One byte more than fits, so that a beginning is never taken for the whole value.
        self._remaining_bytes = max_bytes + 2 * _BYTES_PER_VALUE
        self.is_complete = True

    def copy_of(self, value: Any) -> Any:
        self._remaining_bytes -= _BYTES_PER_VALUE
        if isinstance(value, str):
            return self._copy_of_text(value)
        if type(value) is dict:
            copy = {}
            for name, item in value.items():
                if self._is_full():
                    break
                self._remaining_bytes -= len(name) if isinstance(name, str) else 0
                copy[name] = self.copy_of(item)
            return copy
        if type(value) in (list, tuple):
            items = []
            for item in value:
                if self._is_full():
                    break
                if type(item) in _NUMBERS:
                    self._remaining_bytes -= _BYTES_PER_VALUE
                    items.append(item)
                else:
                    items.append(self.copy_of(item))
            return items
        return value

    def _copy_of_text(self, text: str) -> str:
        if len(text) > self._remaining_bytes:
            self.is_complete = False
            text = text[: max(0, self._remaining_bytes)]
        self._remaining_bytes -= len(text)
        return text

    def _is_full(self) -> bool:
        if self._remaining_bytes > 0:
            return False
        self.is_complete = False
        return True
