"""The processes of a deployment, from their start to their stop: a server, a worker, a migration."""

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import typer
import uvicorn

from app.bootstrap.application import open_application
from app.cli.server import banner, log_filter
from app.cli.server.event_loop import StopSignal
from app.cli.server.socket import listen
from app.domain.errors import ConfigurationError
from app.http.auth import load_authenticator, require_safe_address
from app.http.limits.connections import bounded_protocol
from app.main import create_app
from app.settings import Settings
from app.storage import migrations

REQUEST_DRAIN_TIMEOUT_SECONDS = 2


class _Server(uvicorn.Server):
    """Leaves signals to the process: what it opened must be closed before the signal ends it."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_started()


def _spare_the_collector() -> None:
    """What is here now stays for good: looking at it again and again would only stop everybody's tokens."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def serve(settings: Settings, stop: StopSignal) -> None:
    """Serve HTTP, and execute runs as well unless the role is `api`."""
    if settings.role == "worker":
        raise ConfigurationError("HOLDFAST_ROLE is worker: run `holdfast worker`, or unset it.")
    authenticator = load_authenticator(settings.api_keys_file, settings.api_keys)
    require_safe_address(settings.host, authenticator)
    with listen(settings.host, settings.port) as listener, log_filter.filtered_logs() as muffler:
        async with open_application(settings) as house:
            _spare_the_collector()
            app = create_app(house, authenticator)
            server = _Server(
                uvicorn.Config(
                    app,
                    http=bounded_protocol(settings.client_timeout, settings.max_body_bytes),
                    ws="none",
                    log_config=None,
                    access_log=False,
                    lifespan="off",
                    timeout_graceful_shutdown=REQUEST_DRAIN_TIMEOUT_SECONDS,
                    server_header=False,
                ),
                on_started=lambda: typer.echo(banner.of_server(house, authenticator, listener)),
            )

            loop = asyncio.get_running_loop()

            def leave() -> None:
                muffler.begin_shutdown()
                app.state.drain_state.announce()
                house.begin_shutdown()
                loop.call_later(settings.drain_delay, close)

            def close() -> None:
                app.state.drain_state.begin()
                app.state.stream_options.cut_streams()
                app.state.long_polls.give_up()
                server.handle_exit(signal.SIGTERM, None)

            stop.politely(leave)
            await server.serve(sockets=[listener])


async def work(settings: Settings, stop: StopSignal) -> None:
    """Execute runs without serving HTTP."""
    stopped = asyncio.Event()
    async with open_application(settings.model_copy(update={"role": "worker"})) as house:
        _spare_the_collector()
        stop.politely(stopped.set)
        typer.echo(banner.of_worker(house))
        await stopped.wait()


async def migrate(settings: Settings, _: StopSignal) -> None:
    """Bring the database to this version's schema, out of band."""
    if settings.database_url is None:
        raise ConfigurationError(
            "Set DATABASE_URL: the embedded database is migrated whenever it is started."
        )
    await migrations.upgrade(settings.database_url)
    typer.echo(f"The database is at revision {migrations.newest_revision()}.")
