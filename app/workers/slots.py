"""The slots of a worker, and the tasks that execute in them."""

import asyncio
from collections.abc import Callable, Coroutine

STOP_TIMEOUT_SECONDS = 2.0
"""How long `hand_over_all` waits for interrupted executions; other workers take over those that remain."""


class Slots:
    """At most `count` executions at once. A slot is reserved before a run or task is claimed for it."""

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._slot_freed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: asyncio.TaskGroup | None = None
        self._side_tasks: set[asyncio.Task[None]] = set()
        self.stopping = asyncio.Event()
        """Set by `stop`: no slot can be reserved any more."""

    @property
    def count(self) -> int:
        return self._count

    @property
    def free_count(self) -> int:
        """Free slots; executions beyond the limit don't make it negative."""
        return max(0, self._free)

    async def run(self) -> None:
        """Own the tasks of all executions, until `stop` was called and the last one has ended."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self.stopping.wait()
            await self._idle.wait()
            self._tasks = None
            for task in self._side_tasks:
                task.cancel()

    def stop(self) -> None:
        self.stopping.set()
        self._slot_freed.set()

    async def idle_within(self, seconds: float) -> bool:
        """Wait until no slot is in use; False after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def hand_over_all(self, grace: float, hand_over: Callable[[bool], None]) -> bool:
        """Stop, and have all executions handed over: at their next safe point, or with `hand_over(True)` at
        once after `grace` seconds. False if some still execute after that."""
        self.stop()
        hand_over(False)
        if await self.idle_within(grace):
            return True
        hand_over(True)
        return await self.idle_within(STOP_TIMEOUT_SECONDS)

    # --- reservations ---------------------------------------------------------------------------

    def reserve(self) -> bool:
        """Take a free slot, if there is one. Give it back with `free`, once."""
        return self._free > 0 and self.reserve_extra()

    def reserve_extra(self) -> bool:
        """Take a slot beyond the limit, unless the worker stops."""
        if self._tasks is None or self.stopping.is_set():
            return False
        self._free -= 1
        self._idle.clear()
        return True

    def free(self) -> None:
        self._free += 1
        self._slot_freed.set()
        if self._free == self._count:
            self._idle.set()

    async def reserve_within(self, seconds: float) -> bool:
        """Wait up to `seconds` for a free slot."""
        try:
            async with asyncio.timeout(seconds):
                while not self.reserve():
                    if self.stopping.is_set():
                        return False
                    self._slot_freed.clear()
                    await self._slot_freed.wait()
        except TimeoutError:
            return False
        return True

    # --- tasks ----------------------------------------------------------------------------------

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start an execution in a reserved slot. It must not raise: that would end all executions."""
        if self._tasks is None:
            work.close()
            raise RuntimeError("the worker isn't running")
        return self._tasks.create_task(work)

    def start_beside(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start work that uses no slot; it is cancelled after the last execution. It must not raise."""
        task = self.start(work)
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)
        return task
