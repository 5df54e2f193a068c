"""Errands, carried out by whichever process gets them.

One that fails is tried again, after pauses that grow; then it is given up, and whoever would wait for it
for ever is told. An outage is no failure, nor is that something else has to happen first.
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
    LONGEST_PAUSE,
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
    ctx: ServiceContext, followup: Followup, asked: JobInfo = NEW_JOB
) -> RetryAfter | None:
    """Carry out an errand, and say when it is to be tried again if it can't be done now.

    One that is late counts as tried before it is: it may be what its process died of. One that was given
    up and is asked for again has one try more.
    """
    async with ctx.database.reading() as connection:
        failure = await failed_followups.of_followup(connection, followup)
    tries = 1
    if failure is not None:
        before, wait = failure
        if before.given_up_at is None and wait > 0:
            return RetryAfter(wait)
        tries += before.tries
    if asked.is_late:
        await _note(ctx, followup, tries, "it has waited for long, or its process was lost over it")
        if tries > MAX_TRIES:
            return await _give_up(ctx, followup, tries)
    try:
        is_done = await _carry_out(ctx, followup)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception as error:
        telemetry.followups_failed.labels(followup.name).inc()
        log.exception("errand_failed", **_ids(followup), tries=tries)
        return await _has_failed(ctx, followup, tries, error, is_noted=asked.is_late)
    if failure is not None or asked.is_late:
        async with ctx.database.transaction() as connection:
            await failed_followups.forget(connection, followup)
    return None if is_done else RetryAfter(poll_delay(asked.polls))


async def _carry_out(ctx: ServiceContext, followup: Followup) -> bool:
    """False when it can't be done before something else has happened."""
    match followup:
        case ChildFollowup():
            return await run_child_followup(ctx, followup)
        case AbortRemote(tenant=tenant, run_id=run_id):
            await abort_remote(ctx, tenant, run_id)
            return True
        case CallRunEnd(tenant=tenant, run_id=run_id):
            await call_run_end(ctx, tenant, run_id)
            return True
        case _:
            assert_never(followup)


async def _has_failed(
    ctx: ServiceContext, followup: Followup, tries: int, error: Exception, *, is_noted: bool
) -> RetryAfter | None:
    is_wanted = is_noted or await _note(ctx, followup, tries, ctx.redact(repr(error))[:500])
    if is_wanted and tries < MAX_TRIES:
        return RetryAfter(retry_delay(tries))
    return await _give_up(ctx, followup, tries)


async def _note(ctx: ServiceContext, followup: Followup, tries: int, why: str) -> bool:
    """Count a try; False when the run is gone for which it is done."""
    async with ctx.database.transaction() as connection:
        noted = await failed_followups.note(connection, followup, why, retry_delay(tries))
    return noted is not None


async def _give_up(ctx: ServiceContext, followup: Followup, tries: int) -> RetryAfter | None:
    try:
        await give_up_followup(ctx, followup)
    except DATABASE_UNAVAILABLE:
        raise
    except Exception:
        # Somebody would wait for ever: this isn't given up.
        log.exception("errand_not_given_up", **_ids(followup), tries=tries)
        return RetryAfter(LONGEST_PAUSE)
    telemetry.followups_given_up.labels(followup.name).inc()
    log.error("errand_given_up", **_ids(followup), tries=tries)
    return None


def _ids(followup: Followup) -> dict[str, str]:
    return {
        "errand": followup.name,
        "tenant": followup.tenant,
        "run_id": followup.on_behalf_of,
        "about_run_id": followup.about,
    }
