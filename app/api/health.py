"""Health and metrics over HTTP: for load balancers and monitoring, without a key."""

import asyncio
from typing import Literal, TypeAlias

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import Field

from app.api.schemas.common import ResponseModel, Time
from app.domain.errors import UnavailableReason
from app.events.fanout.relay import Relay, RelayHealth
from app.http.deps import ContextDep, DrainStateDep, HeartbeatDep, RelayDep
from app.http.limits.draining import DrainState
from app.storage.postgres.connect import CANNOT_CONNECT
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.errors import reason_of

DATABASE_TIMEOUT_SECONDS = 2.0
"""Probes are less patient than people."""

Status: TypeAlias = Literal["healthy", "degraded", "unhealthy", "draining"]

router = APIRouter(tags=["operations"])


class RelayOut(ResponseModel):
    """What carries the news of other processes. Without it their events are read from the log: later."""

    wire: str
    state: Literal["connected", "away"]
    since: Time


class Health(ResponseModel):
    status: Status = Field(
        description="`degraded` serves all that `healthy` does, but something of it later."
    )
    components: dict[str, str]
    relay: RelayOut


@router.head("/health", include_in_schema=False)
@router.get("/health", responses={503: {"model": Health, "description": "Not ready"}})
async def is_ready(
    ctx: ContextDep,
    liveness: HeartbeatDep,
    relay: RelayDep,
    drain_state: DrainStateDep,
    response: Response,
) -> Health:
    """Whether this process can serve: 503, and why, when the database doesn't answer or takes no writes,
    and when it is stopping."""
    reason = await _missing(ctx.database) or liveness.missed
    if reason is not None or drain_state.is_announced:
        response.status_code = 503
    return Health(
        status=_status(reason, drain_state, relay),
        components={"database": "ok" if reason is None else reason.value},
        relay=_relay_out(relay.health),
    )


def _status(reason: UnavailableReason | None, drain_state: DrainState, relay: Relay) -> Status:
    if reason is not None:
        return "unhealthy"
    if drain_state.is_announced:
        return "draining"
    return "healthy" if relay.health.is_connected else "degraded"


def _relay_out(standing: RelayHealth) -> RelayOut:
    return RelayOut(
        wire=standing.transport,
        state="connected" if standing.is_connected else "away",
        since=standing.since,
    )


async def _missing(database: Database) -> UnavailableReason | None:
    try:
        async with asyncio.timeout(DATABASE_TIMEOUT_SECONDS):
            await database.ping()
    except (*DATABASE_UNAVAILABLE, *CANNOT_CONNECT) as error:
        return reason_of(error)
    return None


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live")
async def is_alive() -> dict[str, str]:
    """Whether the process answers at all."""
    return {"status": "alive"}


@router.get("/metrics", include_in_schema=False)
async def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
