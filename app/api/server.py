"""Route about the server: its version, its database, and the process that answers."""

from fastapi import APIRouter
from pydantic import Field

from app.api.health import RelayOut, SchemaOut, relay_out, schema_out
from app.api.schemas.common import ResponseModel
from app.distribution import VERSION
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep, RelayDep, WorkerDep
from app.storage.schema_revision import read_schema, server_version

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/system", tags=["system"])


class SystemOut(ResponseModel):
    """The server."""

    version: str = Field(description="Version of Holdfast.")
    postgres_version: str
    database_schema: SchemaOut
    relay: RelayOut
    worker_id: str | None = Field(
        description="Id of the process that answers, as in GET /v1/workers; null if it executes no runs."
    )


@router.get("")
async def get_system(
    ctx: ContextDep, principal: MayRead, relay: RelayDep, worker: WorkerDep
) -> SystemOut:
    """Get the server's versions, and the state of what connects its processes."""
    return SystemOut(
        version=VERSION,
        postgres_version=await server_version(ctx.database.pool),
        database_schema=schema_out(await read_schema(ctx.database.pool)),
        relay=relay_out(relay.health),
        worker_id=None if worker is None else worker.worker_id,
    )
