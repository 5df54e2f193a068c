"""A listener whose connection is lost can be cancelled at the same moment."""

import asyncio
from unittest.mock import Mock

import pytest

from app.clock import yield_to_loop
from app.storage.postgres.notifications import _until_lost

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancellation_that_comes_with_the_loss_isnt_lost(turns: int) -> None:
    lost = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(_until_lost(Mock(), lost))
        await yield_to_loop()
        await yield_to_loop()
        lost.set()
        for _ in range(turns):
            await yield_to_loop()
        was_cancelled = listener.cancel()
        await asyncio.wait({listener})
    assert listener.cancelled() is was_cancelled
