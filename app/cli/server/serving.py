"""Runs a server, a worker or a migration from start to stop."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import structlog
import typer
import uvicorn
from fastapi import FastAPI

from app.bootstrap.application import open_application
from app.cli.server import banner, log_filter
from app.cli.server.event_loop import StopSignal
from app.cli.server.socket import listen
from app.cli.server.supervised import Supervised
from app.domain.errors import ConfigurationError
from app.http.auth import load_authenticator, require_safe_address
from app.http.limits.connections import bounded_protocol
from app.http.origins.web_access import load_web_access
from app.main import create_app, create_health_app
from app.settings import Settings
from app.storage.schema_revision import described

REQUEST_DRAIN_TIMEOUT_SECONDS = 2
FIRST_REQUEST_SECONDS = 0.5
"""How long a process that shares its socket waits for the requests of connections that it has accepted."""


class _Server(uvicorn.Server):
    """Doesn't handle signals, so that the process closes everything before it ends."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_started()

    def stop_accepting(self) -> None:
        """Leave new connections to the other processes of the socket."""
        for server in self.servers:
            server.close()


def _freeze_startup_objects() -> None:
    """Freeze the objects of the start-up, because scanning them again delays streams."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def serve(
    settings: Settings, stop: StopSignal, *, supervised: Supervised | None = None
) -> None:
    """Serve HTTP, and execute runs as well unless the role is `api`.

    A supervised server gets its socket from the process that started it.
    """
    if settings.role == "worker":
        raise ConfigurationError("HOLDFAST_ROLE is worker: run `holdfast worker`, or unset it.")
    web_access = load_web_access(settings.cors_origins, settings.allowed_hosts, settings.public_url)
    authenticator = load_authenticator(settings.api_keys_file, settings.api_keys, web_access)
    require_safe_address(settings.host, authenticator)
    if supervised is not None:
        # Log lines of several processes stand in one log.
        structlog.contextvars.bind_contextvars(pid=os.getpid())
    show_banner = typer.echo if supervised is None else supervised.report
    with (
        listen(settings.host, settings.port, "HOLDFAST_PORT")
        if supervised is None
        else supervised.listener() as listener,
        log_filter.filtered_logs() as shutdown_filter,
    ):
        async with open_application(settings) as application:
            _freeze_startup_objects()
            # In a thread: routes and their description take long, and runs already execute on this loop.
            app = await asyncio.to_thread(create_app, application, authenticator)
            text = banner.of_server(application, authenticator, listener)
            server = _server(app, settings, lambda: show_banner(text))
            loop = asyncio.get_running_loop()
            drain_delay = settings.drain_delay
            if supervised is not None:
                supervised.on_supervisor_lost(loop, stop.request)
                drain_delay = max(drain_delay, FIRST_REQUEST_SECONDS)

            def begin_draining() -> None:
                shutdown_filter.begin_shutdown()
                app.state.drain_state.announce()
                application.shutdown.begin()
                if supervised is not None:
                    server.stop_accepting()
                loop.call_later(drain_delay, stop_serving)

            def stop_serving() -> None:
                app.state.drain_state.begin()
                app.state.stream_options.cut_streams()
                app.state.long_polls.end_all()
                server.handle_exit(signal.SIGTERM, None)

            stop.on_request(begin_draining)
            await server.serve(sockets=[listener])


async def work(settings: Settings, stop: StopSignal) -> None:
    """Execute runs. Only health and metrics are served, until the runs are handed over."""
    settings = settings.model_copy(update={"role": "worker"})
    stopped = asyncio.Event()
    with _health_listener(settings) as listener, log_filter.filtered_logs() as shutdown_filter:
        async with open_application(settings) as application, asyncio.TaskGroup() as tasks:
            _freeze_startup_objects()
            app = create_health_app(application)
            line = banner.of_worker(application, listener)
            server = _server(app, settings, lambda: typer.echo(line))
            stop.on_request(stopped.set)
            if listener is not None:
                tasks.create_task(server.serve(sockets=[listener]))
            else:
                typer.echo(line)
            await stopped.wait()
            shutdown_filter.begin_shutdown()
            app.state.drain_state.announce()
            application.shutdown.begin()
            await application.shutdown.finish()
            server.handle_exit(signal.SIGTERM, None)


def _health_listener(settings: Settings) -> AbstractContextManager[socket.socket | None]:
    if settings.health_port is None:
        return nullcontext()
    return listen(settings.host, settings.health_port, "HOLDFAST_HEALTH_PORT")


def _server(app: FastAPI, settings: Settings, on_started: Callable[[], None]) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http=bounded_protocol(
                settings.client_timeout, max(settings.max_body_bytes, settings.max_file_bytes)
            ),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=REQUEST_DRAIN_TIMEOUT_SECONDS,
            server_header=False,
        ),
        on_started,
    )


async def migrate(settings: Settings, _: StopSignal) -> None:
    """Bring the database to this version's schema, out of band."""
    if settings.database_url is None:
        raise ConfigurationError(
            "Set DATABASE_URL: the embedded database is migrated whenever it is started."
        )
    from app.storage import migrations  # noqa: PLC0415  seldom needed, and slow to import

    reached = await migrations.upgrade(settings.database_url)
    typer.echo(f"The database is at revision {described(reached)}.")
