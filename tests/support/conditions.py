"""Polling for effects of other processes that send no signal."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.support.streams import TIMEOUT_SECONDS

T = TypeVar("T")
POLL_INTERVAL_SECONDS = 0.02


async def eventually(check: Callable[[], Awaitable[T | None]]) -> T:
    """Poll `check` until it returns something."""
    never = asyncio.Event()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (found := await check()):
            try:
                async with asyncio.timeout(POLL_INTERVAL_SECONDS):
                    await never.wait()
            except TimeoutError:
                continue
    return found


@dataclass(frozen=True, slots=True)
class Effects:
    """Side effects of tools: one line per execution, in a file that the call names."""

    file: Path

    @property
    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    @property
    def keys(self) -> list[str]:
        """The idempotency key of each execution."""
        return [line.split()[1] for line in self.lines]

    @property
    def pids(self) -> list[int]:
        """The process of each execution."""
        return [int(line.split()[2]) for line in self.lines]

    async def happened(self, times: int = 1) -> None:
        async def check() -> bool:
            return len(self.lines) >= times

        await eventually(check)

    def held(self, tool: str) -> str:
        """A prompt for a tool call that does not return before `release`."""
        return f'CALL {tool} {{"file": "{self.file}", "hold": true}}'

    def release(self) -> None:
        """Let held calls return, now and later."""
        self.file.with_name(f"{self.file.name}.open").touch()
