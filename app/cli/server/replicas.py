"""`holdfast serve --processes N`: server processes behind one listening socket.

This process supervises. It accepts no connection and executes no run. It starts a new process when one
ends, passes SIGTERM on to all, and on SIGHUP replaces all, one after the other. Connections wait in the
socket's queue meanwhile, so no request is lost.
"""

import signal
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from selectors import EVENT_READ, DefaultSelector
from time import monotonic

import structlog
import typer
from prometheus_client.multiprocess import mark_process_dead

from app import telemetry
from app.cli.server.server_process import STOP_TIMEOUT_SECONDS, ServerProcess
from app.cli.server.socket import listen
from app.http.auth import load_authenticator, require_safe_address
from app.http.origins.web_access import load_web_access
from app.settings import Settings

_FIRST_RESTART_SECONDS = 0.5
_MAX_RESTART_SECONDS = 30.0
_STABLE_AFTER_SECONDS = 60.0
"""A process that served this long is restarted without a growing delay."""
_STOPS = frozenset({signal.SIGINT, signal.SIGTERM})

log = structlog.get_logger(__name__)


class _State(Enum):
    STARTING = auto()
    SERVING = auto()
    STOPPING = auto()


@dataclass(slots=True, eq=False)
class _Replica:
    process: ServerProcess
    started_at: float
    replaces: "_Replica | None" = None
    state: _State = _State.STARTING
    kill_at: float | None = None


def serve_in_processes(settings: Settings) -> int:
    """Serve with `settings.processes` processes until a signal; returns the exit code."""
    web_access = load_web_access(settings.cors_origins, settings.allowed_hosts)
    authenticator = load_authenticator(settings.api_keys_file, settings.api_keys, web_access)
    require_safe_address(settings.host, authenticator)
    with (
        listen(settings.host, settings.port, "HOLDFAST_PORT") as listener,
        tempfile.TemporaryDirectory(prefix="holdfast-metrics-") as metrics,
    ):
        replicas = Replicas(
            settings.processes,
            lambda: ServerProcess(listener, _settings_of_replica(settings, metrics)),
            ended=lambda pid: mark_process_dead(pid, metrics),  # type: ignore[no-untyped-call]
            stop_timeout=settings.drain_delay + settings.handover_grace + STOP_TIMEOUT_SECONDS,
        )
        return replicas.run()


def _settings_of_replica(settings: Settings, metrics: str) -> dict[str, str]:
    """What the command line of this process may have set, and the folder of the common metrics."""
    agents = {} if settings.agents is None else {"HOLDFAST_AGENTS": str(settings.agents)}
    return {"HOLDFAST_HOST": settings.host, telemetry.SHARED_METRICS_VARIABLE: metrics, **agents}


class Replicas:
    """Keeps `count` server processes running."""

    def __init__(
        self,
        count: int,
        start: Callable[[], ServerProcess],
        *,
        ended: Callable[[int], None],
        stop_timeout: float,
    ) -> None:
        self._count = count
        self._start_process = start
        self._ended = ended
        self._stop_timeout = stop_timeout
        self._selector = DefaultSelector()
        self._replicas: list[_Replica] = []
        self._to_replace: deque[_Replica] = deque()
        self._has_served = False
        """Set by the first process that serves. It migrates the database, so the others start after it."""
        self._is_announced = False
        self._is_stopping = False
        self._exit_code = 0
        self._next_start_at = 0.0
        self._restart_delay = _FIRST_RESTART_SECONDS

    def run(self) -> int:
        """Start and supervise the processes until all have stopped."""
        with _signals() as received, self._selector:
            self._selector.register(received, EVENT_READ)
            while True:
                self._start_missing()
                self._kill_overdue()
                if self._is_stopping and not self._replicas:
                    return self._exit_code
                for key, _ in self._selector.select(self._until_next_deadline()):
                    if isinstance(key.data, _Replica):
                        self._on_report(key.data)
                    else:
                        self._on_signals(received.recv(64))

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _STOPS:
                self._stop_all()
            elif number == signal.SIGHUP and not self._is_stopping:
                self._to_replace = deque(
                    r for r in self._replicas if r.state is not _State.STOPPING
                )
                log.info("server_processes_replacing", count=len(self._to_replace))
                self._replace_next()

    def _on_report(self, replica: _Replica) -> None:
        if not replica.process.receive():
            self._on_end(replica)
        elif replica.state is _State.STARTING and replica.process.banner is not None:
            replica.state = _State.SERVING
            self._has_served = True
            self._announce(replica.process.banner)
            if replica.replaces is not None:
                self._stop(replica.replaces)

    def _on_end(self, replica: _Replica) -> None:
        self._selector.unregister(replica.process)
        self._replicas.remove(replica)
        code = replica.process.reap()
        self._ended(replica.process.pid)
        if replica.state is not _State.STOPPING and not self._is_stopping:
            self._on_unexpected_end(replica, code)
        self._replace_next()

    def _on_unexpected_end(self, replica: _Replica, code: int) -> None:
        if not self._has_served:
            # It has printed why it can't start, and another one couldn't either.
            self._exit_code = code or 1
            self._stop_all()
            return
        if replica.replaces is not None and replica.state is _State.STARTING:
            log.error("server_process_not_replaced", pid=replica.process.pid, exit_code=code)
            self._to_replace.clear()
            return
        now = monotonic()
        if now - replica.started_at > _STABLE_AFTER_SECONDS:
            self._restart_delay = _FIRST_RESTART_SECONDS
        log.error(
            "server_process_ended",
            pid=replica.process.pid,
            exit_code=code,
            restart_in=self._restart_delay,
        )
        self._next_start_at = now + self._restart_delay
        self._restart_delay = min(2 * self._restart_delay, _MAX_RESTART_SECONDS)

    def _replace_next(self) -> None:
        """Start the replacement of the next process, unless one is being replaced."""
        if any(replica.replaces in self._replicas for replica in self._replicas):
            return
        while self._to_replace and not self._is_stopping:
            old = self._to_replace.popleft()
            if old in self._replicas and old.state is not _State.STOPPING:
                self._start(replaces=old)
                return

    def _start_missing(self) -> None:
        if self._is_stopping or monotonic() < self._next_start_at:
            return
        wanted = self._count if self._has_served else 1
        running = [r for r in self._replicas if r.state is not _State.STOPPING]
        replacements = [r for r in running if r.replaces in running]
        for _ in range(wanted - (len(running) - len(replacements))):
            self._start()

    def _start(self, replaces: _Replica | None = None) -> None:
        replica = _Replica(self._start_process(), monotonic(), replaces)
        self._replicas.append(replica)
        self._selector.register(replica.process, EVENT_READ, replica)

    def _stop_all(self) -> None:
        self._is_stopping = True
        for replica in self._replicas:
            self._stop(replica)

    def _stop(self, replica: _Replica) -> None:
        replica.state = _State.STOPPING
        if replica.kill_at is None:
            replica.kill_at = monotonic() + self._stop_timeout
        replica.process.terminate()

    def _kill_overdue(self) -> None:
        for replica in self._replicas:
            if replica.kill_at is not None and replica.kill_at <= monotonic():
                replica.process.kill()

    def _until_next_deadline(self) -> float | None:
        """Seconds until a process must be started or killed; None if none must."""
        deadlines = [r.kill_at for r in self._replicas if r.kill_at is not None]
        if self._next_start_at > monotonic():
            deadlines.append(self._next_start_at)
        return max(0.05, min(deadlines) - monotonic()) if deadlines else None

    def _announce(self, banner: str) -> None:
        """Print the first banner, once all processes serve."""
        serving = sum(replica.state is _State.SERVING for replica in self._replicas)
        if not self._is_announced and serving == self._count:
            self._is_announced = True
            typer.echo(
                f"{banner}{self._count} processes serve. SIGHUP replaces them one after the other.\n"
            )


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that receives the number of each signal to stop or to replace."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    with receiver, sender:
        signal.set_wakeup_fd(sender.fileno())
        for number in (*_STOPS, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        yield receiver
