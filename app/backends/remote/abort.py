"""Aborting: a remote is told that nobody wants a turn any more, if it can be told.

What it answers, or whether it answers, changes nothing here.
"""

import asyncio

import structlog

from app.backends.base import Abort, Backend, BackendError
from app.backends.remote.run import started_turn
from app.domain.runs.runs import RunRecord

ABORT_TIMEOUT_SECONDS = 30.0
"""Seconds that the remote has to listen."""

log = structlog.get_logger(__name__)


async def abort_turn(backend: Backend, record: RunRecord) -> None:
    """Tell the remote that a run's newest turn is over, if it may have heard of one."""
    begun = started_turn(record)
    if begun is None or not backend.capabilities.cancellation.supports_remote_abort:
        return
    abort = Abort(
        agent_id=record.agent_id,
        run_id=record.id,
        thread_id=record.thread_id,
        key=begun.key,
        binding=begun.binding,
    )
    try:
        async with asyncio.timeout(ABORT_TIMEOUT_SECONDS):
            await backend.abort(abort)
    except (BackendError, TimeoutError) as error:
        log.warning("remote_abort_failed", run_id=record.id, error=repr(error)[:300])
