"""Servers and workers as processes: failed starts print a reason, and stops are quick and quiet."""

import asyncio
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import rmtree

import asyncpg
import httpx2
import psutil
import pytest

from app.storage.schema_revision import newest_revision
from tests.support.commands import HOLDFAST, Finished, holdfast
from tests.support.conditions import eventually
from tests.support.servers import Running, serving, working
from tests.support.terminals import started

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "terminal" / "agents.toml"
NOWHERE = "postgresql://nobody:secret@127.0.0.1:9/none"
LONG = "word " * 400

# --- failed starts --------------------------------------------------------------------------------


def is_one_sentence(failed: Finished, sentence: str) -> None:
    assert failed.code == 1, failed.err
    assert failed.out == ""
    [line] = failed.err.splitlines()
    assert line.startswith("holdfast: ")
    assert sentence in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"HOLDFAST_HOST": "0.0.0.0"}, "Without API keys, every client that reaches 0.0.0.0"),
        ({"HOLDFAST_HOST": "192.0.2.1", "HOLDFAST_API_KEYS_FILE": "KEYS"}, "HOLDFAST_HOST"),
        ({"HOLDFAST_API_KEYS_FILE": "/nowhere/keys.toml"}, "/nowhere/keys.toml can't be read"),
        ({"HOLDFAST_HEARTBEAT_INTERVAL": "4"}, "HOLDFAST_HEARTBEAT_TIMEOUT: must be at least 3"),
        ({"HOLDFAST_PORT": "seventy"}, "HOLDFAST_PORT: Input should be a valid integer"),
        ({"HOLDFAST_ROLE": "worker"}, "run `holdfast worker`"),
        ({"DATABASE_URL": NOWHERE}, "Can't reach Postgres at 127.0.0.1:9/none"),
        ({"DATABASE_URL": "postgresql://u:secret@host:port/db"}, "can't be read"),
        ({"DATABASE_URL": "mysql://u:secret@somewhere/else"}, "isn't a Postgres URL"),
        ({"HOLDFAST_AGENTS": "/nowhere/agents.toml"}, "/nowhere/agents.toml: can't be read"),
        ({"HOLDFAST_AGENTS": "NO_KEY"}, "OPENAI_API_KEY"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)
async def test_a_failed_start_prints_its_reason_in_one_line(
    database_url: str, tmp_path: Path, settings: dict[str, str], sentence: str
) -> None:
    files = {"KEYS": await _a_keys_file(tmp_path), "NO_KEY": _agents_without_a_key(tmp_path)}
    environment = {"DATABASE_URL": database_url, "HOLDFAST_PORT": "0"}
    environment |= {name: files.get(value, value) for name, value in settings.items()}
    is_one_sentence(await holdfast("serve", **environment), sentence)


async def _a_keys_file(folder: Path) -> str:
    made = await holdfast("keys", "new", "--subject", "me", "--scope", "admin")
    file = folder / "keys.toml"
    file.write_text(made.out)
    return str(file)


def _agents_without_a_key(folder: Path) -> str:
    file = folder / "agents.toml"
    file.write_text(
        '[models.gpt]\nprovider = "openai"\nmodel = "gpt"\n[agents.mine]\nmodel = "gpt"\n'
    )
    return str(file)


async def test_a_model_without_a_key_stops_workers_but_not_the_api(
    database_url: str, tmp_path: Path
) -> None:
    agents = _agents_without_a_key(tmp_path)
    async with serving(database_url, agents=agents, role="api"):
        failed = await holdfast("worker", DATABASE_URL=database_url, HOLDFAST_AGENTS=agents)
        is_one_sentence(failed, "must be able to run")
    async with serving(database_url, agents=agents, role="api") as server:
        await server.printed(re.compile(r"gpt doesn't work: .*OPENAI_API_KEY"))


async def test_a_port_that_is_taken_is_named(database_url: str) -> None:
    async with serving(database_url) as server:
        port = server.base.rpartition(":")[2]
        failed = await holdfast("serve", DATABASE_URL=database_url, HOLDFAST_PORT=port)
        is_one_sentence(failed, f"Port {port} of 127.0.0.1 is in use")


async def test_a_database_without_migrations_is_refused_until_migrated(
    postgres_url: str,
) -> None:
    for command in ("serve", "worker"):
        failed = await holdfast(command, DATABASE_URL=postgres_url, HOLDFAST_PORT="0")
        is_one_sentence(failed, "isn't migrated")
    for _ in range(2):
        migrated = await holdfast("migrate", DATABASE_URL=postgres_url)
        assert (migrated.code, migrated.out) == (
            0,
            f"The database is at revision {newest_revision()}.\n",
        )
    async with serving(postgres_url):
        pass


async def test_a_start_can_migrate_by_itself(postgres_url: str) -> None:
    async with serving(postgres_url, migrate=1):
        pass


async def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    await _execute(database_url, "UPDATE alembic_version SET version_num = '9999'")
    for command, migrate in (("serve", ""), ("serve", "1"), ("migrate", "")):
        failed = await holdfast(command, DATABASE_URL=database_url, HOLDFAST_MIGRATE=migrate)
        is_one_sentence(failed, "migrated by a newer version")


async def test_a_server_that_is_too_old_is_refused(database_url: str, postgres_url: str) -> None:
    for url, command in ((database_url, "serve"), (postgres_url, "migrate")):
        await _report_version_13(url)
        failed = await holdfast(command, DATABASE_URL=url, HOLDFAST_PORT="0")
        is_one_sentence(failed, "Postgres 13 is too old: Holdfast needs 14 or newer")


async def test_a_user_without_schema_rights_gets_an_error(postgres_url: str) -> None:
    await _execute(
        postgres_url,
        "DO $$ BEGIN CREATE ROLE holdfast_guest LOGIN;"
        " EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    )
    guest = postgres_url.replace("postgres@", "holdfast_guest@", 1)
    failed = await holdfast("migrate", DATABASE_URL=guest)
    is_one_sentence(failed, "may not change the schema")


async def test_migrate_requires_a_database_url() -> None:
    is_one_sentence(await holdfast("migrate"), "Set DATABASE_URL")


async def _report_version_13(url: str) -> None:
    await _execute(
        url,
        "CREATE FUNCTION current_setting(name text) RETURNS text LANGUAGE sql AS $$"
        " SELECT CASE name WHEN 'server_version_num' THEN '130022'"
        " ELSE pg_catalog.current_setting(name) END $$;"
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog',"
        " current_database()); END $$",
    )


async def _execute(url: str, statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


async def test_a_misspelled_setting_is_reported(database_url: str) -> None:
    async with serving(database_url, prot=1) as server:
        assert "HOLDFAST_PROT isn't a setting; did you mean HOLDFAST_PORT?" in server.log


# --- stops ----------------------------------------------------------------------------------------


def was_quiet(process: Running) -> None:
    assert "holdfast: stopping" in process.log
    for noise in ("Traceback", "ASGI", "Cancel", "rror"):
        assert noise not in process.log, process.log


@asynccontextmanager
async def in_time(seconds: float = 10) -> AsyncIterator[None]:
    async with asyncio.timeout(seconds):
        yield


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_with_streams_polls_and_runs_stops_quickly_and_quietly(
    database_url: str, number: signal.Signals
) -> None:
    """Another server continues the runs."""
    async with serving(database_url, agents=AGENTS) as server, server.client() as client:
        run = await client.start("slow", LONG)
        path = f"/v1/runs/{run['id']}"
        async with (
            client.events(path) as of_run,
            client.events(f"/v1/threads/{run['thread_id']}") as of_thread,
        ):
            await of_run.until("text_delta")
            waiting = asyncio.get_running_loop().create_task(client.http.get(f"{path}?wait=60"))
            await client.run(run["id"])
            server.process.send_signal(number)
            async with in_time():
                assert await server.gone() == 0
            for stream in (of_run, of_thread):
                with pytest.raises(httpx2.RemoteProtocolError):
                    await stream.rest()
        await asyncio.wait({waiting})
        assert waiting.exception() is None or isinstance(waiting.exception(), httpx2.TransportError)
    was_quiet(server)
    async with serving(database_url, agents=AGENTS) as second, second.client() as client:
        found = await client.run(run["id"])
        assert found["status"] == "running"
        cancelled = await client.post(f"/v1/runs/{run['id']}/cancel?wait=10", {})
        assert cancelled["outcome"] == "cancelled"


async def test_a_worker_stops_quickly_and_quietly(database_url: str) -> None:
    async with (
        serving(database_url, agents=AGENTS, role="api") as server,
        working(database_url, agents=AGENTS) as worker,
        server.client() as client,
    ):
        run = await client.start("slow", LONG)
        async with client.events(f"/v1/runs/{run['id']}") as stream:
            await stream.until("text_delta")
            worker.terminate()
            async with in_time():
                assert await worker.gone() == 0
    was_quiet(worker)


async def test_a_server_stops_although_its_output_is_no_longer_read(database_url: str) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as output:
        server = await asyncio.create_subprocess_exec(
            HOLDFAST,
            "serve",
            env={**os.environ, "DATABASE_URL": database_url, "HOLDFAST_PORT": "0"},
            stdout=writing,
            stderr=writing,
        )
        os.close(writing)
        async with in_time(60):
            while b"Holdfast serves on" not in await asyncio.to_thread(output.readline):
                assert server.returncode is None
    try:
        server.terminate()
        async with in_time():
            assert await server.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            server.kill()


# --- the embedded Postgres ------------------------------------------------------------------------


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Outside pytest's folders, which the server's own user couldn't enter."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-cli-"))
    yield folder / "pg"
    rmtree(folder, ignore_errors=True)


def postgres_of(data_dir: Path) -> list[int]:
    """The Postgres processes of this folder."""
    sockets = f"unix_socket_directories={data_dir / 'cluster'}"
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if sockets in (process.info["cmdline"] or [])
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_stops_the_embedded_postgres_and_keeps_its_data(
    data_dir: Path, number: signal.Signals
) -> None:
    settings = {"HOLDFAST_DATA_DIR": str(data_dir), "HOLDFAST_PORT": "0"}
    runs = []
    for _ in range(2):
        async with started("serve", **settings) as server:
            base = (await server.printed(re.compile(r"serves on (\S+)")))[1]
            assert postgres_of(data_dir)
            done = await holdfast("run", "Hello.", url=base)
            assert done.code == 0, done.err
            async with httpx2.AsyncClient(base_url=base) as client:
                runs.append(len((await client.get("/v1/runs")).json()["items"]))
            server.process.send_signal(number)
            async with in_time():
                assert await server.gone() == 0
        was_quiet(server)
        assert not postgres_of(data_dir)
    assert runs == [1, 2]


@pytest.mark.parametrize(
    "reached",
    [
        lambda data_dir: data_dir.exists(),
        lambda data_dir: (data_dir / "cluster" / "postmaster.pid").exists(),
    ],
    ids=["making its data", "starting"],
)
async def test_a_stop_in_the_middle_of_a_start_leaves_nothing_running(
    data_dir: Path, reached: Callable[[Path], bool]
) -> None:
    settings = {"HOLDFAST_DATA_DIR": str(data_dir), "HOLDFAST_PORT": "0"}
    async with started("serve", **settings) as server:

        async def has_reached() -> bool:
            return reached(data_dir)

        await eventually(has_reached)
        server.terminate()
        async with in_time():
            assert await server.gone() == 0
    was_quiet(server)
    assert not postgres_of(data_dir)
