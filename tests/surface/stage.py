"""Where every answer is produced: three servers of one database, and people who ask them.

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
ALL = ("runs:read", "runs:write", "decisions:write", "signals:write")
HOLDERS = {"ann": Holder("acme", ALL), "bob": Holder("acme", ALL), "nobody": Holder("acme", [])}
BODY_BYTES, MESSAGE_BYTES = 50_000, 2_000
SECRET = "signs the stream tokens of main"
APPROVAL = 'CALL risky {"what": "it"}'


@dataclass(frozen=True, slots=True)
class Stage:
    ann: Client
    bob: Client
    nobody: Client
    stranger: Client
    other: Client
    """Ann, at the other server."""
    away: Client
    signer: StreamTokenSigner
    database: str
    keys: Path
    given_up: dict[Route, httpx2.Response] = field(default_factory=dict, init=False)
    """What a server has answered that was told to go while it could answer nothing."""
    turned_away: dict[Route, httpx2.Response] = field(default_factory=dict, init=False)
    """What a server has answered whose connections to the database were all in use."""

    async def execute(self, statement: str, *values: Any) -> None:
        connection = await asyncpg.connect(self.database)
        try:
            await connection.execute(statement, *values)
        finally:
            await connection.close()

    def one_more(self, **settings: object) -> contextlib.AbstractAsyncContextManager[Server]:
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
        """A run that waits for an answer."""
        client = at or self.ann
        run = await client.settled((await client.start(agent, prompt, **more))["run_id"])
        assert run["status"] == "waiting"
        return run

    async def done(self) -> dict[str, Any]:
        return await self.ann.settled((await self.ann.start("quick", "hello"))["run_id"])

    async def queued(self) -> dict[str, Any]:
        """A run in line behind another, with one message to read."""
        first = await self.waiting()
        return await self.ann.start("quick", "hello", thread_id=first["thread_id"])

    async def cancelled(self, run: dict[str, Any]) -> dict[str, Any]:
        return await self.ann.post(f"/v1/runs/{run['run_id']}/cancel")

    async def steered(self, text: str = "more") -> tuple[dict[str, Any], str]:
        """A run that waits, and a message that waits for it."""
        run = await self.waiting()
        body = {"messages": [{"role": "user", "content": text}], "mode": "steer"}
        sent = await self.ann.post(f"/v1/runs/{run['run_id']}/inputs", body, 202)
        return run, sent["input_ids"][0]


def ticket_of(run: dict[str, Any]) -> str:
    return str(run["waiting"]["tickets"][0]["id"])


@contextlib.asynccontextmanager
async def locked(database: str) -> AsyncIterator[None]:
    """While nobody else can read or write any table."""
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
    """One table after the other: who already has some of them may wait for others, and we for them."""
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
async def a_stage(postgres: Databases, folder: Path) -> AsyncIterator[Stage]:
    keys = write_keys(folder / "keys.toml", HOLDERS)
    agents = AGENTS.with_name("agents_with_one_more.toml")
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(postgres.fresh())
        way = await stack.enter_async_context(forwarding(url))
        main = await stack.enter_async_context(
            serving(
                url,
                agents=AGENTS,
                api_keys_file=keys,
                stream_token_secret=SECRET,
                max_queue_per_thread=1,
                max_body_bytes=BODY_BYTES,
                max_message_bytes=MESSAGE_BYTES,
            )
        )
        other = await stack.enter_async_context(serving(url, agents=agents, api_keys_file=keys))
        away = await stack.enter_async_context(
            serving(
                way.url,
                agents=AGENTS,
                max_body_bytes=BODY_BYTES,
                max_message_bytes=MESSAGE_BYTES,
            )
        )
        await way.block()
        clients = {
            "ann": main.client("ann"),
            "bob": main.client("bob"),
            "nobody": main.client("nobody"),
            "stranger": main.client(),
            "other": other.client("ann"),
            "away": away.client(),
        }
        for client in clients.values():
            await stack.enter_async_context(client)
        yield Stage(**clients, signer=StreamTokenSigner([SECRET.encode()]), database=url, keys=keys)
