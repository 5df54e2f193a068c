"""Aborting: a remote is told that nobody wants a turn any more, if it can be told.

What it answers, or whether it answers, changes nothing here.
"""

import asyncio

import structlog

from app.backends.base import Abort, Backend, BackendError
from app.domain.json_values import JsonObject
from app.domain.runs import RunRecord

WITHIN = 10.0
"""Seconds that the remote has to listen."""

log = structlog.get_logger(__name__)


async def abort_turn(
    backend: Backend, record: RunRecord, key: str, binding: JsonObject | None
) -> None:
    """Tell the remote that a run's newest turn is over, if it has accepted anything."""
    if binding is None or not backend.capabilities.cancellation.supports_remote_abort:
        return
    abort = Abort(
        agent_id=record.agent_id,
        run_id=record.id,
        thread_id=record.thread_id,
        key=key,
        binding=binding,
    )
    try:
        async with asyncio.timeout(WITHIN):
            await backend.abort(abort)
    except (BackendError, TimeoutError) as error:
        log.warning("remote_abort_failed", run_id=record.id, error=repr(error)[:300])
