"""The doctor: looks at everything a server needs, and says what to do about what is missing."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import typer

from app.agents.resolve import models_of
from app.backends.registry import Backends
from app.bootstrap.agents import known_backends, load_agents, require_working_models
from app.bootstrap.connections import nats, require_direct_url
from app.bootstrap.secrets import redactor_of
from app.cli import environment
from app.cli.client.api_client import ServerRefused, ServerUnreachable, connect_client
from app.cli.exit_codes import ExitCode
from app.cli.server.event_loop import StopSignal
from app.domain.agents.endpoints import Endpoint
from app.domain.errors import ConfigurationError, DatabaseUnusable
from app.domain.ids import AgentId
from app.domain.redaction import Redact
from app.embedded_postgres.server import EmbeddedPostgres, default_data_dir
from app.events.fanout.relay import TransportUnavailable
from app.http.auth import load_authenticator, require_safe_address
from app.settings import Settings
from app.storage import migrations
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.connection_budget import (
    connection_budget,
    connections_of,
    has_statement_timeout,
)
from app.storage.postgres.database import DATABASE_UNAVAILABLE, Database
from app.storage.postgres.urls import place_of

_OF_THE_DATABASE: tuple[type[Exception], ...] = (
    ConfigurationError,
    DatabaseUnusable,
    *DATABASE_UNAVAILABLE,
)


class _Findings:
    def __init__(self, redact: Redact) -> None:
        self.problems = 0
        self._redact = redact

    def ok(self, what: str, remark: str = "") -> None:
        typer.echo(f"ok       {what}{f': {remark}' if remark else ''}")

    def problem(self, what: str, sentence: str) -> None:
        self.problems += 1
        for line in self._redact(sentence).splitlines():
            typer.echo(f"problem  {what}: {line}")


async def run_checks(settings: Settings, url: str | None, key: str | None, _: StopSignal) -> None:
    """One line for each thing that was looked at; exit code 1 when something is wrong."""
    findings = _Findings(redactor_of(settings, os.environ))
    _variables(findings)
    _keys(findings, settings)
    await _agents(findings, settings)
    await _database(findings, settings)
    await _relay(findings, settings)
    await asyncio.to_thread(_server, findings, settings, url, key)
    raise SystemExit(ExitCode.FAILED if findings.problems else ExitCode.SUCCEEDED)


def _variables(findings: _Findings) -> None:
    strangers = environment.unknown_variables(os.environ)
    for sentence in strangers:
        findings.problem("settings", sentence)
    if not strangers:
        chosen = [one.name for one in environment.variables() if os.environ.get(one.name)]
        findings.ok("settings", ", ".join(chosen) or "all are the default")


def _keys(findings: _Findings, settings: Settings) -> None:
    try:
        authenticator = load_authenticator(settings.api_keys_file, settings.api_keys)
        require_safe_address(settings.host, authenticator)
    except ConfigurationError as error:
        findings.problem("API keys", str(error))
    else:
        findings.ok("API keys", "none, so this machine only" if authenticator.is_keyless else "")


async def _agents(findings: _Findings, settings: Settings) -> None:
    backends = known_backends()
    try:
        catalog, models = load_agents(settings, backends)
    except ConfigurationError as error:
        findings.problem("agents", str(error))
        return
    try:
        if settings.agents is not None:
            require_working_models(settings.agents, catalog, models)
        findings.ok("agents", ", ".join(catalog.agents))
    except ConfigurationError as error:
        findings.problem("agents", str(error))
    used = {name for spec in catalog.agents.values() for name in models_of(spec, catalog)}
    for spec in models.specs:
        problem = models.problem(spec.name)
        if problem is None:
            findings.ok(f"model {spec.name}", spec.model or "plays a script")
        elif spec.name not in used:
            findings.ok(f"model {spec.name}", f"no agent uses it, and it can't work: {problem}")
        elif settings.agents is None:
            findings.problem(f"model {spec.name}", problem)
    for agent in catalog.agents.values():
        if agent.endpoint is not None:
            _endpoint(findings, agent.id, agent.endpoint, backends)
    await models.aclose()


def _endpoint(findings: _Findings, agent: AgentId, endpoint: Endpoint, backends: Backends) -> None:
    """Nobody is called: whether the agent can be talked to as it is written down."""
    problem = backends.problem(endpoint)
    if problem is None:
        findings.ok(f"agent {agent}", f"lives elsewhere, by {endpoint.backend}; not called now")
    else:
        findings.problem(f"agent {agent}", problem)


async def _database(findings: _Findings, settings: Settings) -> None:
    data_dir = settings.data_dir or default_data_dir()
    if settings.database_url is None and not (data_dir / "cluster").exists():
        findings.ok("database", f"embedded, to be made in {data_dir} by the first start")
        return
    try:
        async with _opened(settings) as (database, place):
            await migrations.require_recent(database.pool)
            version = await migrations.server_version(database.pool)
            findings.ok("database", f"Postgres {version} at {place}")
            await _schema(findings, database, settings)
    except _OF_THE_DATABASE as error:
        findings.problem("database", str(error) or type(error).__name__)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Database, str]]:
    """The database that a server would use; an embedded one is started if it doesn't run."""
    embedded: EmbeddedPostgres | None = None
    url = settings.database_url
    if url is None:
        data_dir = settings.data_dir or default_data_dir()
        embedded = await asyncio.to_thread(EmbeddedPostgres.start, data_dir)
        url, place = embedded.url, str(embedded.data_dir)
    else:
        place = place_of(url)
    try:
        require_direct_url(settings)
        options = DatabaseOptions(pool_size=2, hot_pool_size=2, pgbouncer=settings.pgbouncer)
        database = await Database.open(url, options, listen_url=settings.listen_url)
        try:
            yield database, place
        finally:
            await database.close()
    finally:
        if embedded is not None:
            await asyncio.to_thread(embedded.stop)


async def _schema(findings: _Findings, database: Database, settings: Settings) -> None:
    try:
        await migrations.require_usable(database.pool)
    except migrations.NotMigrated as error:
        if settings.migrate or (settings.migrate is None and settings.database_url is None):
            findings.ok("migrations", "the next start makes them")
        else:
            findings.problem("migrations", str(error))
        return
    findings.ok("migrations", f"revision {migrations.newest_revision()}")
    if await migrations.queue_is_there(database.pool):
        findings.ok("queue")
    else:
        findings.problem("queue", "its tables are missing: restore the schema pgq from a backup")
    await _connections(findings, database, settings)


async def _connections(findings: _Findings, database: Database, settings: Settings) -> None:
    each = connections_of(
        pool_size=settings.pool_size,
        hot_pool_size=settings.hot_pool_size,
        pgbouncer=settings.pgbouncer,
    )
    found = await connection_budget(database.pool, each)
    count = f"{found.processes} running, each opens up to {found.each} of {found.available}"
    if found.is_enough:
        findings.ok("connections", count)
    else:
        findings.problem(
            "connections",
            f"{count}: raise max_connections, lower HOLDFAST_POOL_SIZE or HOLDFAST_HOT_POOL_SIZE, "
            "or put a PgBouncer in between",
        )
    if settings.pgbouncer and not await has_statement_timeout(database.pool):
        findings.problem(
            "statement timeout",
            "none behind PgBouncer: ALTER ROLE … SET statement_timeout = '15s', lock_timeout = '5s'",
        )


async def _relay(findings: _Findings, settings: Settings) -> None:
    """Only where one is named: without, the database carries the hints."""
    if settings.nats_url is None:
        return
    try:
        findings.ok("NATS", await nats().require_reachable(settings.nats_url))
    except ConfigurationError as error:
        findings.problem("NATS", str(error))
    except TransportUnavailable as error:
        findings.problem(
            "NATS",
            f"no server of NATS_URL answers ({error}); replicas read from the log what the others say",
        )


def _server(findings: _Findings, settings: Settings, url: str | None, key: str | None) -> None:
    """Asked for only by default, it needn't run."""
    address, key = environment.server_settings(url, key)
    try:
        with connect_client(address, key) as server:
            server.get("/health")
            agents = server.get("/v1/agents")["items"]
    except ServerUnreachable as error:
        if url is None and settings.url is None:
            findings.ok("server", f"none runs at {address}")
        else:
            findings.problem("server", str(error))
    except ServerRefused as error:
        remedy = ": set HOLDFAST_API_KEY to one that it knows" if error.status == 401 else ""
        findings.problem("server", f"{address} answers {error}{remedy}")
    else:
        findings.ok("server", f"{address} offers {', '.join(one['id'] for one in agents)}")
