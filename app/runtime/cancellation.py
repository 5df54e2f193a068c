"""Interruption: stops the current work of an executing run.

A run is interrupted for a cancel, for a hand-over to another worker, at its time limit, or because another
worker owns it. Slow work is inside an `interruptible` block, which an urgent request leaves at once. At a
step's border the run checks for requests itself.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType


class InterruptReason(Enum):
    CANCEL = auto()
    HAND_OVER = auto()
    OUT_OF_TIME = auto()
    """The run's wall time is used up."""
    ABANDON = auto()
    """Another worker owns the run: stop, and write nothing."""


@dataclass
class Interrupted(Exception):
    """Raised where a run is interrupted; never leaves the runtime."""

    reason: InterruptReason


class Interruption:
    """The interruption request of one execution. Several tasks may set it; only the loop acts on it."""

    def __init__(self) -> None:
        self.requested: InterruptReason | None = None
        self.reason: str | None = None
        self._scopes: set[asyncio.Timeout] = set()
        self._is_urgent = False
        self._is_free = False

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the run now; this replaces a hand-over."""
        if self.requested is not InterruptReason.ABANDON:
            self.requested = InterruptReason.CANCEL
            self.reason = reason
            self._interrupt()

    def abandon(self) -> None:
        self.requested = InterruptReason.ABANDON
        self._interrupt()

    def check(self) -> None:
        """Raise `Interrupted` if an interruption was requested; for safe points."""
        if self.requested is not None:
            raise Interrupted(self.requested)

    def hand_over(self, *, now: bool) -> None:
        """Stop at the next safe point, or with `now` at once."""
        if self.requested is None:
            self.requested = InterruptReason.HAND_OVER
        if now or self._is_free:
            self._interrupt()

    def hand_over_if_free(self, is_free: bool) -> None:
        """Set whether a hand-over may stop the run at once, because the next worker can join its remote work."""
        self._is_free = is_free
        if is_free and self.requested is InterruptReason.HAND_OVER:
            self._interrupt()

    def out_of_time(self, *, now: bool) -> None:
        """Stop at the next safe point because of the time limit, or with `now` at once."""
        if self.requested is None:
            self.requested = InterruptReason.OUT_OF_TIME
        if now and self.requested is InterruptReason.OUT_OF_TIME:
            self._interrupt()

    def interruptible(self) -> "InterruptibleBlock":
        """Run a block that an urgent request leaves by raising `Interrupted`."""
        return InterruptibleBlock(self)

    def enter(self, scope: asyncio.Timeout) -> None:
        """A block begins that an urgent request leaves by this time-out."""
        self._scopes.add(scope)
        if self._is_urgent:
            scope.reschedule(0.0)

    def leave(self, scope: asyncio.Timeout) -> None:
        self._scopes.discard(scope)

    def _interrupt(self) -> None:
        """Leave the interruptible blocks, only once: a block that is being left can't be interrupted again."""
        if self._is_urgent:
            return
        self._is_urgent = True
        for scope in self._scopes:
            scope.reschedule(0.0)


class InterruptibleBlock:
    """The block of an `async with`. A step has several of them, and a generator would cost three times as much."""

    __slots__ = ("_interruption", "_scope")

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._scope = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        self._interruption.enter(self._scope)

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._interruption.leave(self._scope)
        try:
            await self._scope.__aexit__(error_type, error, traceback)
        except TimeoutError:
            self._raise_if_interrupted()
            raise
        if isinstance(error, TimeoutError):
            self._raise_if_interrupted()

    def _raise_if_interrupted(self) -> None:
        requested = self._interruption.requested
        if self._scope.expired() and requested is not None:
            raise Interrupted(requested) from None
