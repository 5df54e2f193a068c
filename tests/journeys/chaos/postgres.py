"""The Postgres of one trial, which the nemesis restarts and whose connections it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import asyncpg

from app.embedded_postgres import programs
from app.storage import migrations
from app.storage.postgres.database import DATABASE_UNAVAILABLE

_TIMEOUT_SECONDS = 60
_SETTINGS = "fsync=off full_page_writes=off listen_addresses= max_connections=200".split()
_EFFECTS = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.effects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tool text NOT NULL, what text NOT NULL,
    key text NOT NULL, run_id uuid NOT NULL, call_id text NOT NULL, pid int NOT NULL, attempt int,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
"""
_END_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


async def add_effects(url: str) -> None:
    """Create the table in which tools record their effects."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_EFFECTS)
    finally:
        await connection.close()


async def end_connections(url: str) -> None:
    """End all client connections, as a failover does."""
    try:
        connection = await asyncpg.connect(url, timeout=10)
    except DATABASE_UNAVAILABLE:
        return  # a restart ends the connections as well
    try:
        await connection.execute(_END_OTHERS)
    finally:
        connection.terminate()


class Postgres:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._user = programs.server_user(folder / "cluster")
        self.url = f"postgresql://postgres@/postgres?host={folder / 'cluster'}&port=5432"

    async def restart(self, mode: Literal["fast", "immediate"]) -> None:
        """Restart Postgres; `immediate` equals a crash with recovery from the log."""
        await self._control("restart", f"--mode={mode}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Postgres"]:
        self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        programs.grant_access(self._user, self._folder)
        await asyncio.to_thread(programs.make_cluster, self._folder / "cluster", self._user)
        options = " ".join(f"-c {setting}" for setting in _SETTINGS)
        socket_dir = f"-c unix_socket_directories={self._folder / 'cluster'}"
        await self._control(
            "start", "--log=cluster/server.log", f"--options={options} {socket_dir}"
        )
        try:
            await migrations.upgrade(self.url)
            await add_effects(self.url)
            yield self
        finally:
            await self._control("stop", "--mode=immediate")

    async def _control(self, command: str, *arguments: str) -> None:
        complaint = await asyncio.to_thread(
            programs.run,
            "pg_ctl",
            *(command, "--silent", "--wait", f"--timeout={_TIMEOUT_SECONDS}", "--pgdata=cluster"),
            *arguments,
            user=self._user,
            folder=self._folder,
            timeout=_TIMEOUT_SECONDS + 10,
        )
        if complaint is not None:
            raise RuntimeError(f"pg_ctl {command}: {complaint}")
