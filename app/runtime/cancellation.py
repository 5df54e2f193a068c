"""Interruption: how a wish from outside reaches whatever a run is doing right now.

A run is interrupted to be cancelled, to be handed over to another worker, because its time is up, or
because another worker has it already. Slow work stands in an
`interruptible` block, which a wish that can't wait breaks at once; at a step's border the run looks
by itself.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto


class InterruptReason(Enum):
    CANCEL = auto()
    HAND_OVER = auto()
    OUT_OF_TIME = auto()
    """It has executed for as long as it may."""
    ABANDON = auto()
    """The run belongs to another worker: stop, and write nothing."""


@dataclass
class Interrupted(Exception):
    """Left an interruptible block because of a wish; never leaves the runtime."""

    reason: InterruptReason


class Interruption:
    """One per execution; anybody may wish, only the loop obeys."""

    def __init__(self) -> None:
        self.wish: InterruptReason | None = None
        self.reason: str | None = None
        self._scopes: set[asyncio.Timeout] = set()
        self._breaks = False
        self._is_free = False

    def cancel(self, reason: str | None = None) -> None:
        """End the run, now; this outweighs a hand-over."""
        if self.wish is not InterruptReason.ABANDON:
            self.wish = InterruptReason.CANCEL
            self.reason = reason
            self._break()

    def abandon(self) -> None:
        self.wish = InterruptReason.ABANDON
        self._break()

    def check(self) -> None:
        """A safe point: leave here if somebody wishes it."""
        if self.wish is not None:
            raise Interrupted(self.wish)

    def hand_over(self, *, now: bool) -> None:
        """Stop at the next safe point, or at once when waiting for one has taken too long."""
        if self.wish is None:
            self.wish = InterruptReason.HAND_OVER
        if now or self._is_free:
            self._break()

    def hand_over_if_free(self, free: bool) -> None:
        """Whether a hand-over may break in at once, because whoever takes over joins in what goes on."""
        self._is_free = free
        if free and self.wish is InterruptReason.HAND_OVER:
            self._break()

    def out_of_time(self, *, now: bool) -> None:
        """As a hand-over: what is under way may come to its end, unless that takes too long."""
        if self.wish is None:
            self.wish = InterruptReason.OUT_OF_TIME
        if now and self.wish is InterruptReason.OUT_OF_TIME:
            self._break()

    @asynccontextmanager
    async def interruptible(self) -> AsyncIterator[None]:
        """Run a block that a wish may break; then `Interrupted` leaves it."""
        try:
            async with asyncio.timeout(None) as scope:
                self._scopes.add(scope)
                if self._breaks:
                    scope.reschedule(0)
                try:
                    yield
                finally:
                    self._scopes.discard(scope)
        except TimeoutError:
            if scope.expired() and self.wish is not None:
                raise Interrupted(self.wish) from None
            raise

    def _break(self) -> None:
        """Once: a block that is being left already can't be broken again."""
        if self._breaks:
            return
        self._breaks = True
        for scope in self._scopes:
            scope.reschedule(0)
