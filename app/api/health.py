"""Health and metrics over HTTP: for load balancers and monitoring, without a key."""

import asyncio
from typing import Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.api.schemas.common import Answer
from app.storage.database import CANNOT_CONNECT, DATABASE_AWAY
from app.transport.deps import DepartureDep, DeskDep

router = APIRouter(tags=["operations"])


class Health(Answer):
    status: Literal["healthy", "unhealthy", "draining"]
    components: dict[str, str]


@router.head("/health", include_in_schema=False)
@router.get("/health", responses={503: {"model": Health, "description": "Not ready"}})
async def is_ready(desk: DeskDep, departure: DepartureDep, response: Response) -> Health:
    """Whether this process can serve: 503 when the database doesn't answer, or when it is stopping."""
    database = "ok"
    try:
        async with asyncio.timeout(5):
            await desk.database.ping()
    except (*DATABASE_AWAY, *CANNOT_CONNECT) as error:
        database = type(error).__name__
    status: Literal["healthy", "unhealthy", "draining"] = "healthy"
    if database != "ok":
        status = "unhealthy"
    elif departure.is_announced:
        status = "draining"
    if status != "healthy":
        response.status_code = 503
    return Health(status=status, components={"database": database})


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live")
async def is_alive() -> dict[str, str]:
    """Whether the process answers at all."""
    return {"status": "alive"}


@router.get("/metrics", include_in_schema=False)
async def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
