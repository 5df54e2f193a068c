"""Routes of health and metrics, for load balancers and monitoring. They need no API key."""

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
"""Shorter than the time-outs of most health probes."""

Status: TypeAlias = Literal["healthy", "degraded", "unhealthy", "draining"]

router = APIRouter(tags=["health"])


class RelayOut(ResponseModel):
    """The transport that announces events of other processes. While it is away, they are read from the log,
    which takes longer."""

    wire: str
    state: Literal["connected", "away"]
    since: Time


class Health(ResponseModel):
    """Whether the process can serve requests."""

    status: Status = Field(
        description="`degraded` serves everything, but events of other processes arrive later."
    )
    components: dict[str, str]
    relay: RelayOut


@router.head("/health", include_in_schema=False)
@router.get("/health", responses={503: {"model": Health, "description": "Not ready"}})
async def get_health(
    ctx: ContextDep,
    liveness: HeartbeatDep,
    relay: RelayDep,
    drain_state: DrainStateDep,
    response: Response,
) -> Health:
    """Readiness. 503 if the database doesn't respond or is read-only, or if the server is stopping."""
    reason = await _missing(ctx.database) or liveness.last_failure
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


def _relay_out(health: RelayHealth) -> RelayOut:
    return RelayOut(
        wire=health.transport,
        state="connected" if health.is_connected else "away",
        since=health.since,
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
async def get_liveness() -> dict[str, str]:
    """Liveness: 200 while the process responds."""
    return {"status": "alive"}


@router.get("/metrics", include_in_schema=False)
async def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
