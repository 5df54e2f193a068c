"""The processes of a deployment, from their start to their stop: a server, a worker, a migration."""

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import typer
import uvicorn

from app.cli import banner, shutdown_noise
from app.cli.listening import listen
from app.cli.process import Stop
from app.domain.errors import ConfigurationError
from app.main import create_app
from app.settings import Settings
from app.storage import migrations
from app.transport.auth import doorkeeper, require_safe_address
from app.transport.wire import bounded_protocol
from app.wiring.house import open_house

PATIENCE_FOR_REQUESTS = 2


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


async def serve(settings: Settings, stop: Stop) -> None:
    """Serve HTTP, and execute runs as well unless the role is `api`."""
    if settings.role == "worker":
        raise ConfigurationError("HOLDFAST_ROLE is worker: run `holdfast worker`, or unset it.")
    door = doorkeeper(settings.api_keys_file, settings.api_keys)
    require_safe_address(settings.host, door)
    with listen(settings.host, settings.port) as listener, shutdown_noise.muffled() as muffler:
        async with open_house(settings) as house:
            _spare_the_collector()
            app = create_app(house, door)
            server = _Server(
                uvicorn.Config(
                    app,
                    http=bounded_protocol(settings.client_patience, settings.max_body_bytes),
                    ws="none",
                    log_config=None,
                    access_log=False,
                    lifespan="off",
                    timeout_graceful_shutdown=PATIENCE_FOR_REQUESTS,
                    server_header=False,
                ),
                on_started=lambda: typer.echo(banner.of_server(house, door, listener)),
            )

            loop = asyncio.get_running_loop()

            def leave() -> None:
                muffler.expect_the_end()
                app.state.departure.announce()
                house.begin_to_rest()
                loop.call_later(settings.drain_delay, close)

            def close() -> None:
                app.state.departure.begin()
                app.state.stream_options.cut_streams()
                app.state.long_polls.give_up()
                server.handle_exit(signal.SIGTERM, None)

            stop.politely(leave)
            await server.serve(sockets=[listener])


async def work(settings: Settings, stop: Stop) -> None:
    """Execute runs without serving HTTP."""
    stopped = asyncio.Event()
    async with open_house(settings.model_copy(update={"role": "worker"})) as house:
        _spare_the_collector()
        stop.politely(stopped.set)
        typer.echo(banner.of_worker(house))
        await stopped.wait()


async def migrate(settings: Settings, _: Stop) -> None:
    """Bring the database to this version's schema, out of band."""
    if settings.database_url is None:
        raise ConfigurationError(
            "Set DATABASE_URL: the embedded database is migrated whenever it is started."
        )
    await migrations.upgrade(settings.database_url)
    typer.echo(f"The database is at revision {migrations.newest_revision()}.")
