"""Agent specs: every version that was ever used, so that a waiting run finds its own again."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from app.domain.agents.specs import AgentSpec, agent_from_json, agent_to_json
from app.domain.ids import AgentId, AgentVersion, Tenant
from app.domain.principals import ALL_TENANTS
from app.storage.postgres.database import Connection
from app.storage.tables import agents


async def publish_specs(connection: Connection, tenant: Tenant, specs: Sequence[AgentSpec]) -> None:
    """Keep these versions; ones that are known stay as they are."""
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


async def find(
    connection: Connection, tenant: Tenant, agent_id: AgentId, version: AgentVersion
) -> AgentSpec | None:
    """One exact version that the tenant may see."""
    statement = select(agents.c.spec).where(
        agents.c.tenant.in_((tenant, ALL_TENANTS)),
        agents.c.id == agent_id,
        agents.c.version == version,
    )
    spec = (await connection.execute(statement)).scalars().first()
    return None if spec is None else agent_from_json(spec)
