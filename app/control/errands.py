"""Errands, carried out by whichever process gets them.

One that fails is tried again, after pauses that grow; then it is given up, and whoever would wait for it
for ever is told. An outage is no failure, nor is that something else has to happen first.
"""

from typing import assert_never

import structlog

from app import telemetry
from app.control.abort import abort_remote
from app.control.children import run_child_errand
from app.control.desk import Desk
from app.control.run_end import call_run_end
from app.control.undone import settle
from app.domain.errands import (
    LONGEST_PAUSE,
    MOST_TRIES,
    AbortRemote,
    AboutChild,
    Asked,
    CallRunEnd,
    Errand,
    Later,
    look_after,
    pause_after,
)
from app.storage import failed_errands
from app.storage.database import DATABASE_AWAY

NEW = Asked()

log = structlog.get_logger(__name__)


async def run_errand(desk: Desk, errand: Errand, asked: Asked = NEW) -> Later | None:
    """Carry out an errand, and say when it is to be tried again if it can't be done now.

    One that is late counts as tried before it is: it may be what its process died of. One that was given
    up and is asked for again has one try more.
    """
    async with desk.database.reading() as connection:
        failure = await failed_errands.of_errand(connection, errand)
    tries = 1
    if failure is not None:
        before, wait = failure
        if before.given_up_at is None and wait > 0:
            return Later(wait)
        tries += before.tries
    if asked.is_late:
        await _note(desk, errand, tries, "it has waited for long, or its process was lost over it")
        if tries > MOST_TRIES:
            return await _give_up(desk, errand, tries)
    try:
        is_done = await _carry_out(desk, errand)
    except DATABASE_AWAY:
        raise
    except Exception as error:
        telemetry.errands_failed.labels(errand.name).inc()
        log.exception("errand_failed", **_ids(errand), tries=tries)
        return await _has_failed(desk, errand, tries, error, is_noted=asked.is_late)
    if failure is not None or asked.is_late:
        async with desk.database.transaction() as connection:
            await failed_errands.forget(connection, errand)
    return None if is_done else Later(look_after(asked.looks))


async def _carry_out(desk: Desk, errand: Errand) -> bool:
    """False when it can't be done before something else has happened."""
    match errand:
        case AboutChild():
            return await run_child_errand(desk, errand)
        case AbortRemote(tenant=tenant, run_id=run_id):
            await abort_remote(desk, tenant, run_id)
            return True
        case CallRunEnd(tenant=tenant, run_id=run_id):
            await call_run_end(desk, tenant, run_id)
            return True
        case _:
            assert_never(errand)


async def _has_failed(
    desk: Desk, errand: Errand, tries: int, error: Exception, *, is_noted: bool
) -> Later | None:
    is_wanted = is_noted or await _note(desk, errand, tries, desk.redact(repr(error))[:500])
    if is_wanted and tries < MOST_TRIES:
        return Later(pause_after(tries))
    return await _give_up(desk, errand, tries)


async def _note(desk: Desk, errand: Errand, tries: int, why: str) -> bool:
    """Count a try; False when the run is gone for which it is done."""
    async with desk.database.transaction() as connection:
        noted = await failed_errands.note(connection, errand, why, pause_after(tries))
    return noted is not None


async def _give_up(desk: Desk, errand: Errand, tries: int) -> Later | None:
    try:
        await settle(desk, errand)
    except DATABASE_AWAY:
        raise
    except Exception:
        # Somebody would wait for ever: this isn't given up.
        log.exception("errand_not_given_up", **_ids(errand), tries=tries)
        return Later(LONGEST_PAUSE)
    telemetry.errands_given_up.labels(errand.name).inc()
    log.error("errand_given_up", **_ids(errand), tries=tries)
    return None


def _ids(errand: Errand) -> dict[str, str]:
    return {
        "errand": errand.name,
        "tenant": errand.tenant,
        "run_id": errand.on_behalf_of,
        "about_run_id": errand.about,
    }
