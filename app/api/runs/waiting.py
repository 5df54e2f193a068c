"""How long a request waits for a run, and until when. It is the same on every route that waits."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from msgspec import Struct

from app.context import ServiceContext
from app.domain.ids import Tenant
from app.domain.runs.runs import RunRecord
from app.http.limits.long_polls import LongPolls
from app.queries.wait import wait_until_settled

MAX_WAIT_SECONDS = 60

Follow = Annotated[
    bool,
    Query(
        description="`1` continues while the run needs a decision: only its end ends the stream or the wait."
    ),
]


class WaitRequest(Struct, frozen=True):
    """How long the client wants to wait; 0 is not at all."""

    seconds: int
    headers: Mapping[str, str] = {}
    """Tell the client that its preference was applied."""


async def _wait(
    request: Request,
    wait: Annotated[
        int | None,
        Query(
            ge=0,
            le=MAX_WAIT_SECONDS,
            description="Maximum seconds to wait. It wins over `Prefer`.",
        ),
    ] = None,
    prefer: Annotated[
        str | None,
        Header(
            description="`wait=N` waits up to N seconds, at most 60. `Preference-Applied` says how many."
        ),
    ] = None,
) -> WaitRequest:
    if wait is not None:
        return WaitRequest(wait)
    seconds = _preferred(",".join(request.headers.getlist("prefer")))
    if seconds is None:
        return WaitRequest(0)
    return WaitRequest(seconds, {"Preference-Applied": f"wait={seconds}"})


WaitDep = Annotated[WaitRequest, Depends(_wait)]


def _preferred(preferences: str) -> int | None:
    """The seconds of the first preference `wait=N`. One that is malformed is ignored, as any preference."""
    for one in preferences.split(","):
        name, _, value = one.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            text = value.strip().strip('"')
            is_number = text.isascii() and text.isdigit()
            return min(int(text[:9]), MAX_WAIT_SECONDS) if is_number else None
    return None


async def wait_for(
    ctx: ServiceContext,
    tenant: Tenant,
    polls: LongPolls,
    runs: Sequence[RunRecord],
    wait: WaitRequest,
    *,
    until_done: bool,
) -> bool:
    """Wait until all runs are done, or, without `until_done`, need a decision; False if time is over before."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait.seconds
    for run in runs:
        left = max(0.0, end - loop.time())
        settled = wait_until_settled(ctx, tenant, run.thread_id, run.id, left, only_done=until_done)
        if not await polls.hold(settled):
            return False
    return True
