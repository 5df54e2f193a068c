"""Three servers on one database that produce every response, and their clients.

`main` has keys and narrow limits. `other` has the same keys, wider limits and one agent more. `away` has
no keys and has lost its database.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
from asyncpg.transaction import Transaction

from app.http.stream_grants import StreamTokenSigner
from tests.support.databases import Databases
from tests.support.forwarders import forwarding
from tests.support.keys import Holder, write_keys
from tests.support.routes import Route
from tests.support.servers import Server, serving
from tests.support.streams import Client

AGENTS = Path(__file__).with_name("agents") / "agents.toml"
ALL = (
    "runs:read",
    "runs:write",
    "decisions:write",
    "signals:write",
    "usage:read",
    "memories:own",
)
ADMIN_PATH = "/v1/mcp-servers/"
"""Changes below this path need the scope `admin`."""
HOLDERS = {
    "root": Holder("acme", ["admin"]),
    "ann": Holder("acme", ALL),
    "bob": Holder("acme", ALL),
    "no-scopes": Holder("acme", []),
}
BODY_BYTES, MESSAGE_BYTES = 50_000, 2_000
SECRET = "signs the stream tokens of main"
APPROVAL = 'CALL risky {"what": "it"}'


@dataclass(frozen=True, slots=True)
class Servers:
    root: Client
    """With the scope `admin`."""
    ann: Client
    bob: Client
    without_scopes: Client
    anonymous: Client
    other: Client
    """The client `ann` of the server `other`."""
    away: Client
    signer: StreamTokenSigner
    database: str
    keys: Path
    draining_answers: dict[Route, httpx2.Response] = field(default_factory=dict, init=False)
    """Responses of a server that was stopped while every table was locked."""
    overloaded_answers: dict[Route, httpx2.Response] = field(default_factory=dict, init=False)
    """Responses of a server whose database connections were all in use."""

    def allowed(self, route: Route) -> Client:
        """A client that may use the operation."""
        needs_admin = route.method == "POST" and route.path.startswith(ADMIN_PATH)
        return self.root if needs_admin else self.ann

    async def execute(self, statement: str, *values: Any) -> None:
        connection = await asyncpg.connect(self.database)
        try:
            await connection.execute(statement, *values)
        finally:
            await connection.close()

    def extra_server(self, **settings: object) -> contextlib.AbstractAsyncContextManager[Server]:
        """One more server, for one scenario."""
        return serving(self.database, agents=AGENTS, api_keys_file=self.keys, **settings)

    async def waiting(
        self,
        agent: str = "quick",
        prompt: str = APPROVAL,
        *,
        at: Client | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """A run that waits for a decision."""
        client = at or self.ann
        run = await client.settled((await client.start(agent, prompt, **more))["id"])
        assert run["status"] == "waiting"
        return run

    async def done(self) -> dict[str, Any]:
        return await self.ann.settled((await self.ann.start("quick", "hello"))["id"])

    async def queued(self) -> dict[str, Any]:
        """A run queued behind another one, with one pending message."""
        first = await self.waiting()
        return await self.ann.start("quick", "hello", thread_id=first["thread_id"])

    async def cancelled(self, run: dict[str, Any]) -> dict[str, Any]:
        return await self.ann.post(f"/v1/runs/{run['id']}/cancel")

    async def steered(self, text: str = "more") -> tuple[dict[str, Any], str]:
        """A waiting run, and a pending message for it."""
        run = await self.waiting()
        body = {"messages": [{"role": "user", "content": text}], "mode": "steer"}
        sent = await self.ann.post(f"/v1/runs/{run['id']}/inputs", body, 202)
        return run, sent["input_ids"][0]


def ticket_of(run: dict[str, Any]) -> str:
    return str(run["waiting"]["tickets"][0]["id"])


@contextlib.asynccontextmanager
async def locked(database: str) -> AsyncIterator[None]:
    """Lock every table, so that no other connection can read or write it."""
    connection = await asyncpg.connect(database)
    try:
        tables = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables"
            " WHERE schemaname = 'public' ORDER BY tablename"
        )
        held = await _lock(connection, ", ".join(row["name"] for row in tables))
        yield
        await held.rollback()
    finally:
        await connection.close()


async def _lock(connection: "asyncpg.Connection[asyncpg.Record]", tables: str) -> Transaction:
    """Lock all tables; retry after a deadlock with a transaction that already holds some of them."""
    while True:
        transaction = connection.transaction()
        await transaction.start()
        try:
            await connection.execute(f"LOCK {tables}")
        except asyncpg.DeadlockDetectedError:
            await transaction.rollback()
        else:
            return transaction


@contextlib.asynccontextmanager
async def open_servers(postgres: Databases, folder: Path) -> AsyncIterator[Servers]:
    keys = write_keys(folder / "keys.toml", HOLDERS)
    agents = AGENTS.with_name("agents_with_one_more.toml")
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(postgres.fresh())
        forwarder = await stack.enter_async_context(forwarding(url))
        main = await stack.enter_async_context(
            serving(
                url,
                agents=AGENTS,
                api_keys_file=keys,
                stream_token_secret=SECRET,
                max_queue_per_thread=1,
                max_body_bytes=BODY_BYTES,
                max_file_bytes=BODY_BYTES,
                max_message_bytes=MESSAGE_BYTES,
            )
        )
        other = await stack.enter_async_context(serving(url, agents=agents, api_keys_file=keys))
        away = await stack.enter_async_context(
            serving(
                forwarder.url,
                agents=AGENTS,
                max_body_bytes=BODY_BYTES,
                max_file_bytes=BODY_BYTES,
                max_message_bytes=MESSAGE_BYTES,
            )
        )
        await forwarder.block()
        clients = {
            "root": main.client("root"),
            "ann": main.client("ann"),
            "bob": main.client("bob"),
            "without_scopes": main.client("no-scopes"),
            "anonymous": main.client(),
            "other": other.client("ann"),
            "away": away.client(),
        }
        for client in clients.values():
            await stack.enter_async_context(client)
        yield Servers(
            **clients, signer=StreamTokenSigner([SECRET.encode()]), database=url, keys=keys
        )
