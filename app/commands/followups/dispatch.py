"""Executes follow-ups, with retries.

A follow-up that fails is retried with growing delays, then given up; `give_up` ends what would wait for it.
An outage is no failure, and neither is a follow-up that has to wait for something else.
"""

from typing import assert_never

import structlog

from app import telemetry
from app.commands.followups.abort_remote import abort_remote
from app.commands.followups.child_runs import run_child_followup
from app.commands.followups.give_up import give_up_followup
from app.commands.followups.run_end import call_run_end
from app.context import ServiceContext
from app.domain.children.followups import (
    MAX_RETRY_SECONDS,
    MAX_TRIES,
    AbortRemote,
    CallRunEnd,
    ChildFollowup,
    Followup,
    JobInfo,
    RetryAfter,
    poll_delay,
    retry_delay,
)
from app.storage.postgres.database import DATABASE_UNAVAILABLE
from app.storage.queue import failed_followups

NEW_JOB = JobInfo()

log = structlog.get_logger(__name__)


async def run_followup(
    ctx: ServiceContext, followup: Followup, job: JobInfo = NEW_JOB
) -> RetryAfter | None:
    """Execute a follow-up; returns when to retry it if it isn't done.

    A late job counts as a failed try before it is executed: it may have killed its worker. A follow-up that
    was given up and is enqueued again gets one more try.
    """
    async with ctx.database.reading() as connection:
        failure = await failed_followups.of_followup(connection, followup)
    tries = 1
    if failure is not None:
        before, wait = failure
        if before.given_up_at is None and wait > 0:
            return RetryAfter(wait)
        tries += before.tries
    if job.is_late:
        await _record_failure(
            ctx, followup, tries, "it was not done in time: its process may have died of it"
        )
        if tries > MAX_TRIES:
            return await _give_up(ctx, followup, tries)
    try:
        is_done = await _execute(ctx, followup)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception as error:
        telemetry.followups_failed.labels(followup.name).inc()
        log.exception("followup_failed", **_ids(followup), tries=tries)
        return await _has_failed(ctx, followup, tries, error, is_recorded=job.is_late)
    if failure is not None or job.is_late:
        async with ctx.database.transaction() as connection:
            await failed_followups.remove(connection, followup)
    return None if is_done else RetryAfter(poll_delay(job.polls))


async def _execute(ctx: ServiceContext, followup: Followup) -> bool:
    """Execute the follow-up; False if it has to wait for another row."""
    match followup:
        case ChildFollowup():
            return await run_child_followup(ctx, followup)
        case AbortRemote(tenant=tenant, run_id=run_id):
            await abort_remote(ctx, tenant, run_id)
            return True
        case CallRunEnd(tenant=tenant, run_id=run_id):
            return await call_run_end(ctx, tenant, run_id)
        case _:
            assert_never(followup)


async def _has_failed(
    ctx: ServiceContext, followup: Followup, tries: int, error: Exception, *, is_recorded: bool
) -> RetryAfter | None:
    is_wanted = is_recorded or await _record_failure(
        ctx, followup, tries, ctx.redact(repr(error))[:500]
    )
    if is_wanted and tries < MAX_TRIES:
        return RetryAfter(retry_delay(tries))
    return await _give_up(ctx, followup, tries)


async def _record_failure(ctx: ServiceContext, followup: Followup, tries: int, why: str) -> bool:
    """Record a failed try; False if the run of the follow-up was deleted."""
    async with ctx.database.transaction() as connection:
        noted = await failed_followups.record(connection, followup, why, retry_delay(tries))
    return noted is not None


async def _give_up(ctx: ServiceContext, followup: Followup, tries: int) -> RetryAfter | None:
    try:
        await give_up_followup(ctx, followup)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        # A run may wait for it, so giving it up is retried.
        log.exception("followup_give_up_failed", **_ids(followup), tries=tries)
        return RetryAfter(MAX_RETRY_SECONDS)
    telemetry.followups_given_up.labels(followup.name).inc()
    log.error("followup_given_up", **_ids(followup), tries=tries)
    return None


def _ids(followup: Followup) -> dict[str, str]:
    return {
        "followup": followup.name,
        "tenant": followup.tenant,
        "run_id": followup.on_behalf_of,
        "about_run_id": followup.about,
    }
