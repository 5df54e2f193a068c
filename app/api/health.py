"""Health and metrics over HTTP: for load balancers and monitoring, without a key."""

import asyncio
from typing import Literal, TypeAlias

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import Field

from app.api.schemas.common import Answer, Time
from app.domain.errors import Reason
from app.events.relay import Relay, Standing
from app.storage.connecting import CANNOT_CONNECT
from app.storage.database import DATABASE_AWAY, Database
from app.storage.outages import reason_of
from app.transport.departure import Departure
from app.transport.deps import DepartureDep, DeskDep, LivenessDep, RelayDep

PATIENCE = 2.0
"""Probes are less patient than people."""

Status: TypeAlias = Literal["healthy", "degraded", "unhealthy", "draining"]

router = APIRouter(tags=["operations"])


class RelayOut(Answer):
    """What carries the news of other processes. Without it their events are read from the log: later."""

    wire: str
    state: Literal["connected", "away"]
    since: Time


class Health(Answer):
    status: Status = Field(
        description="`degraded` serves all that `healthy` does, but something of it later."
    )
    components: dict[str, str]
    relay: RelayOut


@router.head("/health", include_in_schema=False)
@router.get("/health", responses={503: {"model": Health, "description": "Not ready"}})
async def is_ready(
    desk: DeskDep,
    liveness: LivenessDep,
    relay: RelayDep,
    departure: DepartureDep,
    response: Response,
) -> Health:
    """Whether this process can serve: 503, and why, when the database doesn't answer or takes no writes,
    and when it is stopping."""
    reason = await _missing(desk.database) or liveness.missed
    if reason is not None or departure.is_announced:
        response.status_code = 503
    return Health(
        status=_status(reason, departure, relay),
        components={"database": "ok" if reason is None else reason.value},
        relay=_relay_out(relay.standing),
    )


def _status(reason: Reason | None, departure: Departure, relay: Relay) -> Status:
    if reason is not None:
        return "unhealthy"
    if departure.is_announced:
        return "draining"
    return "healthy" if relay.standing.is_heard else "degraded"


def _relay_out(standing: Standing) -> RelayOut:
    return RelayOut(
        wire=standing.wire,
        state="connected" if standing.is_heard else "away",
        since=standing.since,
    )


async def _missing(database: Database) -> Reason | None:
    try:
        async with asyncio.timeout(PATIENCE):
            await database.ping()
    except (*DATABASE_AWAY, *CANNOT_CONNECT) as error:
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
