"""Rounds: what a process does again and again for as long as it lives."""

import asyncio


async def next_round(stopping: asyncio.Event, interval: float) -> bool:
    """Wait until the next one is due; False when the process stops instead."""
    try:
        async with asyncio.timeout(interval):
            await stopping.wait()
    except TimeoutError:
        return True
    return False
