"""The doctor: looks at everything a server needs, and says what to do about what is missing."""

import os

import httpx2
import typer

from app.cli import environment
from app.cli.endings import ExitCode
from app.domain.errors import ConfigurationError, DatabaseUnusable
from app.llm.catalog import problem_of
from app.settings import Settings
from app.storage import migrations
from app.storage.database import DATABASE_AWAY, Database, DatabaseOptions
from app.transport.auth import doorkeeper, require_safe_address
from app.wiring import load_agents

_OK = None
_OF_THE_DATABASE: tuple[type[Exception], ...] = (DatabaseUnusable, *DATABASE_AWAY)


class _Findings:
    def __init__(self) -> None:
        self.problems = 0

    def note(self, what: str, problem: str | None, remark: str = "") -> None:
        mark = "ok     " if problem is None else "problem"
        self.problems += problem is not None
        typer.echo(f"{mark}  {what}{f': {problem or remark}' if problem or remark else ''}")


async def examine(url: str, key: str | None) -> None:
    """One line for each thing that was looked at; exit code 1 when something is wrong."""
    findings = _Findings()
    settings = environment.read_settings()
    for sentence in environment.strangers(os.environ):
        findings.note("settings", sentence)
    findings.note("settings", _OK)
    _keys(findings, settings)
    _agents(findings, settings)
    await _database(findings, settings)
    await _server(findings, url, key)
    raise SystemExit(ExitCode.FAILED if findings.problems else ExitCode.SUCCEEDED)


def _keys(findings: _Findings, settings: Settings) -> None:
    try:
        door = doorkeeper(settings.api_keys_file, settings.api_keys, settings.stream_token_secret)
        require_safe_address(settings.host, door)
    except ConfigurationError as error:
        findings.note("API keys", str(error))
    else:
        findings.note("API keys", _OK, "none; this machine only" if door.is_keyless else "")


def _agents(findings: _Findings, settings: Settings) -> None:
    try:
        catalog, models = load_agents(settings)
    except ConfigurationError as error:
        findings.note("agents", str(error))
        return
    findings.note("agents", _OK, ", ".join(catalog.agents))
    for spec in models.specs:
        findings.note(f"model {spec.name}", problem_of(spec, os.environ))


async def _database(findings: _Findings, settings: Settings) -> None:
    if settings.database_url is None:
        findings.note("database", _OK, "embedded; it is started and migrated with the server")
        return
    try:
        database = await Database.open(
            settings.database_url, DatabaseOptions(pool_size=2, hot_pool_size=2)
        )
    except DatabaseUnusable as error:
        findings.note("database", str(error))
        return
    try:
        await migrations.require_usable(database.hot)
        findings.note("database", _OK, f"revision {migrations.newest_revision()}")
        there = await migrations.queue_is_there(database.hot)
        findings.note("queue", _OK if there else "its tables are missing: run `holdfast migrate`")
    except _OF_THE_DATABASE as error:
        findings.note("database", str(error))
    finally:
        await database.close()


async def _server(findings: _Findings, url: str, key: str | None) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=5) as http:
            health = await http.get("/health")
            agents = await http.get("/v1/agents")
    except httpx2.TransportError:
        findings.note("server", _OK, f"none at {url}")
        return
    findings.note("server", _OK if health.is_success else f"{url}/health says {health.text[:200]}")
    if agents.status_code == 401:
        findings.note("your key", "the server doesn't know it: set HOLDFAST_API_KEY")
