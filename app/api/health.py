"""Health and metrics over HTTP: for load balancers and monitoring, without a key."""

import asyncio
from typing import Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.api.schemas.common import Answer
from app.domain.errors import Reason
from app.storage.connecting import CANNOT_CONNECT
from app.storage.database import DATABASE_AWAY, Database
from app.storage.outages import reason_of
from app.transport.deps import DepartureDep, DeskDep, LivenessDep

PATIENCE = 2.0
"""Probes are less patient than people."""

router = APIRouter(tags=["operations"])


class Health(Answer):
    status: Literal["healthy", "unhealthy", "draining"]
    components: dict[str, str]


@router.head("/health", include_in_schema=False)
@router.get("/health", responses={503: {"model": Health, "description": "Not ready"}})
async def is_ready(
    desk: DeskDep, liveness: LivenessDep, departure: DepartureDep, response: Response
) -> Health:
    """Whether this process can serve: 503, and why, when the database doesn't answer or takes no writes,
    and when it is stopping."""
    reason = await _missing(desk.database) or liveness.missed
    if reason is not None:
        response.status_code = 503
        return Health(status="unhealthy", components={"database": reason.value})
    if departure.is_announced:
        response.status_code = 503
        return Health(status="draining", components={"database": "ok"})
    return Health(status="healthy", components={"database": "ok"})


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
