"""The MCP servers of a process: their stored listings, and what other processes have to know of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import asdict

from app.domain.json_values import JsonObject
from app.storage import mcp_tools
from app.storage.postgres.database import Database
from app.tools.mcp.listing import StoredTool
from app.tools.mcp.names import digest_of
from app.tools.mcp.servers import McpServers

REFRESH_SECONDS = 2.0
"""After this time a process knows what was accepted, and which restarts were requested, by another one."""
REPORT_SECONDS = 20.0


class StoredListings(Struct, frozen=True):
    """Listings in the database."""

    database: Database

    async def load(self) -> Mapping[str, Sequence[StoredTool]]:
        found = await mcp_tools.load(self.database.pool)
        return {server: [StoredTool(**row) for row in rows] for server, rows in found.items()}

    async def save(
        self, server: str, tools: Mapping[str, JsonObject], *, is_whole: bool
    ) -> Sequence[StoredTool]:
        rows = [
            {"name": name, "digest": digest_of(described), "described": described}
            for name, described in tools.items()
        ]
        async with self.database.transaction() as connection:
            await mcp_tools.save(connection, server, rows, is_whole=is_whole)
        return (await self.load()).get(server, ())


@dataclass(slots=True)
class McpReports:
    """Keeps the servers of this process and the database in step."""

    database: Database
    servers: McpServers
    _restarts: dict[str, int] | None = None
    _reported: Mapping[str, JsonObject] = field(default_factory=dict)
    _rounds: int = 0

    async def refresh(self) -> None:
        """Read what other processes have stored, and store the states here."""
        await self.servers.refresh()
        await self._restart_requested()
        if self.servers.process:
            await self._report()

    async def _restart_requested(self) -> None:
        wanted = await mcp_tools.restarts(self.database.pool)
        if self._restarts is not None:
            for name, server in self.servers.servers.items():
                if wanted.get(name, 0) != self._restarts.get(name, 0):
                    server.restart()
        self._restarts = wanted

    async def _report(self) -> None:
        states = {name: asdict(server.report) for name, server in self.servers.servers.items()}
        self._rounds += 1
        is_due = self._rounds * REFRESH_SECONDS >= REPORT_SECONDS
        if states == self._reported and not is_due:
            return
        await mcp_tools.report(self.database.pool, self.servers.process, states)
        self._reported, self._rounds = states, 0

    async def close(self) -> None:
        """Delete the states of this process."""
        if self.servers.process:
            await mcp_tools.forget(self.database.pool, self.servers.process)
