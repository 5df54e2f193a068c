"""Agent specs: every version that was used, so that a waiting run finds its own version."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from app.domain.agents.specs import AgentSpec, agent_from_json, agent_to_json
from app.domain.ids import AgentId, AgentVersion, Tenant
from app.domain.principals import ALL_TENANTS
from app.storage.postgres.database import Connection
from app.storage.tables import agents


async def publish_specs(connection: Connection, tenant: Tenant, specs: Sequence[AgentSpec]) -> None:
    """Insert these versions. Existing ones stay unchanged."""
    if specs:
        await connection.execute(
            insert(agents)
            .values(
                [
                    {
                        "tenant": tenant,
                        "id": spec.id,
                        "version": spec.version,
                        "spec": agent_to_json(spec),
                    }
                    for spec in specs
                ]
            )
            .on_conflict_do_nothing()
        )


class StoredVersion(Struct, frozen=True):
    """A version of an agent, and when a server first had it."""

    version: AgentVersion
    created_at: datetime


async def versions(
    connection: Connection, tenant: Tenant, agent_id: AgentId, limit: int
) -> list[StoredVersion]:
    """The newest versions of an agent that the tenant may use."""
    statement = (
        select(agents.c.version, agents.c.created_at)
        .where(agents.c.tenant.in_((tenant, ALL_TENANTS)), agents.c.id == agent_id)
        .order_by(agents.c.created_at.desc(), agents.c.version)
        .limit(limit)
    )
    rows = await connection.execute(statement)
    return [StoredVersion(AgentVersion(row.version), row.created_at) for row in rows]


async def find(
    connection: Connection, tenant: Tenant, agent_id: AgentId, version: AgentVersion
) -> AgentSpec | None:
    """One version of an agent that the tenant may use."""
    statement = select(agents.c.spec).where(
        agents.c.tenant.in_((tenant, ALL_TENANTS)),
        agents.c.id == agent_id,
        agents.c.version == version,
    )
    spec = await connection.scalar(statement)
    return None if spec is None else agent_from_json(spec)
