"""Waiting for what other processes do, when nothing tells us that it has happened."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.support.streams import PATIENCE

T = TypeVar("T")
LOOK_AGAIN = 0.02


async def eventually(look: Callable[[], Awaitable[T | None]]) -> T:
    """Look until there is something."""
    never = asyncio.Event()
    async with asyncio.timeout(PATIENCE):
        while not (found := await look()):
            try:
                async with asyncio.timeout(LOOK_AGAIN):
                    await never.wait()
            except TimeoutError:
                continue
    return found


@dataclass(frozen=True, slots=True)
class Effects:
    """What tools leave behind: a line per execution, in a file that they were told of."""

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
        async def look() -> bool:
            return len(self.lines) >= times

        await eventually(look)

    def held(self, tool: str) -> str:
        """A prompt that has the model call a tool which doesn't come back until it is released."""
        return f'CALL {tool} {{"file": "{self.file}", "hold": true}}'

    def release(self) -> None:
        """Let go whatever is held, now and later."""
        self.file.with_name(f"{self.file.name}.open").touch()
