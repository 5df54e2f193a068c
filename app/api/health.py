"""Routes of health and metrics, for load balancers and monitoring. They need no API key.

Servers have them beside all other routes, workers alone, on HOLDFAST_HEALTH_PORT.
"""

import asyncio
from typing import Literal, TypeAlias

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import Field

from app import telemetry
from app.api.schemas.common import ResponseModel, Time
from app.domain.errors import UnavailableReason
from app.events.fanout.relay import Relay, RelayHealth
from app.http.deps import ContextDep, DrainStateDep, HeartbeatDep, RelayDep
from app.http.limits.draining import DrainState
from app.storage.postgres.connect import CANNOT_CONNECT
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.errors import reason_of
from app.storage.schema_revision import FoundSchema, SchemaStatus, newest_revision, read_schema

DATABASE_TIMEOUT_SECONDS = 2.0
"""Shorter than the time-outs of most health probes."""

Status: TypeAlias = Literal["healthy", "degraded", "unhealthy", "draining"]

_STARTABLE = (SchemaStatus.CURRENT, SchemaStatus.AHEAD)

router = APIRouter(tags=["health"])


class RelayOut(ResponseModel):
    """The transport that announces events of other processes. While it is disconnected, they are read from the
    log, which takes longer."""

    transport: str
    status: Literal["connected", "disconnected"]
    since: Time


class SchemaOut(ResponseModel):
    """The schema of the database. While a newer version is rolled out, it may be ahead."""

    revision: str | None = Field(description="Revision of the database.")
    expected: str = Field(description="Revision of this version.")
    status: Literal["current", "ahead", "old", "too_new"] = Field(
        description="`ahead`: one additive revision ahead, on which this version runs. `old` and `too_new`: this "
        "version refuses to start on it."
    )


class Health(ResponseModel):
    """Whether the process can serve requests."""

    status: Status = Field(
        description="`degraded` serves everything, but events of other processes arrive later, or the process "
        "would refuse to start on the present schema."
    )
    components: dict[str, str]
    database_schema: SchemaOut | None = Field(
        description="null while the database doesn't respond."
    )
    relay: RelayOut


@router.head("/health", include_in_schema=False)
@router.get("/health", responses={503: {"model": Health, "description": "Not ready"}})
async def get_health(
    ctx: ContextDep,
    heartbeat: HeartbeatDep,
    relay: RelayDep,
    drain_state: DrainStateDep,
    response: Response,
) -> Health:
    """Readiness. 503 if the database doesn't respond or is read-only, or if the server is stopping."""
    found = await _read_schema(ctx.database)
    reason = found if isinstance(found, UnavailableReason) else heartbeat.last_failure
    schema = None if isinstance(found, UnavailableReason) else found
    if reason is not None or drain_state.is_announced:
        response.status_code = 503
    return Health(
        status=_status(reason, drain_state, relay, schema),
        components={"database": "ok" if reason is None else reason.value},
        database_schema=None if schema is None else schema_out(schema),
        relay=relay_out(relay.health),
    )


def _status(
    reason: UnavailableReason | None,
    drain_state: DrainState,
    relay: Relay,
    schema: FoundSchema | None,
) -> Status:
    if reason is not None:
        return "unhealthy"
    if drain_state.is_announced:
        return "draining"
    can_start = schema is not None and schema.status in _STARTABLE
    return "healthy" if relay.health.is_connected and can_start else "degraded"


def schema_out(found: FoundSchema) -> SchemaOut:
    return SchemaOut(revision=found.revision, expected=newest_revision(), status=found.status.value)


def relay_out(health: RelayHealth) -> RelayOut:
    return RelayOut(
        transport=health.transport,
        status="connected" if health.is_connected else "disconnected",
        since=health.since,
    )


async def _read_schema(database: Database) -> FoundSchema | UnavailableReason:
    """The schema, or why the database can't be used."""
    try:
        async with asyncio.timeout(DATABASE_TIMEOUT_SECONDS):
            await database.ping()
            return await read_schema(database.pool)
    except (*DATABASE_UNAVAILABLE, *CANNOT_CONNECT) as error:
        return reason_of(error)


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live")
async def get_liveness() -> dict[str, str]:
    """Liveness: 200 while the process responds."""
    return {"status": "alive"}


@router.get("/metrics", include_in_schema=False)
async def metrics() -> Response:
    # In a thread: with several processes it reads the files of all of them, and runs execute on this loop.
    text = await asyncio.to_thread(telemetry.exposition)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
