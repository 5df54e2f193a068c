"""The tools of a server as one credential sees them, and when they are listed again."""

import asyncio
from dataclasses import dataclass, field

from app.tools.mcp.listing import Listing

LISTING_SECONDS = 300.0
"""A list of tools is read again after this time, unless the server announces changes before."""
MIN_LISTING_SECONDS = 10.0
FAILED_LISTING_SECONDS = 5.0
"""Activations within this time after a failed list use the last known tools."""


@dataclass(slots=True)
class ToolList:
    listing: Listing | None = None
    """None until this process has listed the tools."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listed_at: float = 0.0
    _listed_start: int = 0
    """The start of the server that the list is from. After another start it may have other tools."""
    _list_again_at: float = 0.0
    _has_changed: bool = False

    def is_fresh(self, starts: int | None) -> bool:
        """Whether it can be used. `starts` counts the starts of the server; None if it was never needed."""
        now = asyncio.get_running_loop().time()
        if now < self._list_again_at:
            return True
        if self.listing is None or self._has_changed:
            return False
        if starts is not None and starts != self._listed_start:
            return False
        wanted = self.listing.fresh_for or LISTING_SECONDS
        return now - self._listed_at < max(wanted, MIN_LISTING_SECONDS)

    def begin(self) -> None:
        """Changes from now on are not in the list that is read."""
        self._has_changed = False

    def note(self, listing: Listing, starts: int) -> None:
        self.listing, self._listed_start = listing, starts
        self._listed_at = asyncio.get_running_loop().time()

    def note_failure(self) -> None:
        self._has_changed = True
        self._list_again_at = asyncio.get_running_loop().time() + FAILED_LISTING_SECONDS

    def note_change(self) -> None:
        self._has_changed = True

    def read_again(self) -> None:
        """Read the list before the next use, also right after a failure."""
        self._has_changed, self._list_again_at = True, 0.0
