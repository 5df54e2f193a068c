"""Opens tickets without a checkpoint."""

from collections.abc import Sequence

from app.domain.ids import Tenant
from app.domain.tickets.tickets import Ticket
from app.storage.postgres.database import Connection
from app.storage.postgres.named_parameters import NamedSql
from app.storage.tickets.opening import opened_ctes, opened_json

_OPEN = NamedSql(f"WITH {opened_ctes(':opened')} SELECT")


async def open_tickets(connection: Connection, tenant: Tenant, opened: Sequence[Ticket]) -> None:
    """Insert tickets and their notices, as a checkpoint does."""
    rows = opened_json((1, tenant, each) for each in opened)
    await connection.driver.execute(*_OPEN(opened=rows))
