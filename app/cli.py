"""The command line: serve, work, migrate, and talk to a server."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any

import structlog
import typer
import uvicorn
from pydantic import ValidationError

from app import telemetry
from app.domain.errors import ConfigurationError, DatabaseUnusable
from app.main import create_app
from app.settings import Settings
from app.storage import migrations
from app.transport.auth import doorkeeper, require_safe_address
from app.wiring import House, open_house

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="LLM agents as a service.",
)
log = structlog.get_logger(__name__)


def main() -> None:
    app()


@app.command()
def serve() -> None:
    """Serve HTTP, and execute runs unless HOLDFAST_ROLE is `api`."""
    settings = _settings()
    _run(lambda: _serve(settings))


@app.command()
def worker() -> None:
    """Execute runs without serving HTTP."""
    settings = _settings().model_copy(update={"role": "worker"})
    _run(lambda: _work(settings))


@app.command()
def migrate() -> None:
    """Bring the database of DATABASE_URL to this version's schema."""
    settings = _settings()
    if settings.database_url is None:
        _stop("Set DATABASE_URL: the embedded database is migrated when it is started.")
    _run(lambda: migrations.upgrade(settings.database_url or ""))
    typer.echo(f"The database is at revision {migrations.newest_revision()}.")


async def _serve(settings: Settings) -> None:
    door = doorkeeper(settings.api_keys_file, settings.api_keys, settings.stream_token_secret)
    require_safe_address(settings.host, door)
    async with open_house(settings) as house:
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(house, door),
                host=settings.host,
                port=settings.port,
                loop="uvloop",
                http="httptools",
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=2,
                server_header=False,
            )
        )
        serving = asyncio.ensure_future(server.serve())  # noqa: TID251  ended below, in any case
        try:
            while not server.started and not serving.done():
                await asyncio.wait({serving}, timeout=0.02)
            if server.started:
                _announce(house, server)
            await serving
        finally:
            server.should_exit = True
            await serving


async def _work(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with open_house(settings) as house:
        typer.echo(f"Worker of {house.place}, {settings.concurrency} runs at once.", err=True)
        await stop.wait()


def _announce(house: House, server: uvicorn.Server) -> None:
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    base = f"http://{host}:{port}"
    models = ", ".join(spec.name for spec in house.models.specs) or "none"
    agent = next(iter(house.catalog.agents), "demo")
    body = f'{{"agent_id":"{agent}","messages":[{{"role":"user","content":"delete /tmp/old-report.txt"}}]}}'
    typer.echo(
        f"\nHoldfast serves on {base}\n"
        f"  data    {house.place}\n"
        f"  models  {models}\n"
        f"  docs    {base}/docs\n"
        f"  try     curl -N {base}/v1/runs -H 'Accept: text/event-stream' "
        f"-H 'Content-Type: application/json' -d '{body}'\n",
        err=False,
    )
    sys.stdout.flush()


def _settings() -> Settings:
    try:
        settings = Settings()
    except ValidationError as error:
        one = error.errors(include_input=False)[0]
        _stop(f"HOLDFAST_{'_'.join(str(part) for part in one['loc']).upper()}: {one['msg']}")
    telemetry.set_up_logging(settings.log_level, as_json=settings.log_json)
    return settings


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(work())
    except* (ConfigurationError, DatabaseUnusable) as errors:
        _stop(str(errors.exceptions[0]))
    except* KeyboardInterrupt:
        raise SystemExit(130) from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    return import_module("uvloop").new_event_loop  # type: ignore[no-any-return]  # a C module


def _stop(sentence: str) -> Any:
    typer.echo(f"holdfast: {sentence}", err=True)
    raise SystemExit(1)
