"""One event loop from start to end: signals stop it, and what keeps it from working is a sentence."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

import structlog
import typer

from app import telemetry
from app.bootstrap.secrets import redactor_of
from app.cli import environment
from app.cli.exit_codes import exit_with
from app.domain.errors import ConfigurationError, DatabaseUnusable
from app.settings import Settings

log = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SENTENCES = (ConfigurationError, DatabaseUnusable)


class StopSignal:
    """The wish to end, by Ctrl-C or SIGTERM.

    The first is fulfilled politely by whoever said how; before that, and when it is repeated, the work
    is cancelled where it stands, and what was opened is closed all the same.
    """

    def __init__(self, work: "asyncio.Task[Any]") -> None:
        self._work = work
        self._politely: Callable[[], None] | None = None
        self.is_wished = False

    def politely(self, how: Callable[[], None]) -> None:
        self._politely = how

    def request(self) -> None:
        how, self._politely = self._politely, None
        if not self.is_wished:
            typer.echo("holdfast: stopping …", err=True)
        self.is_wished = True
        if how is not None:
            how()
        else:
            self._work.cancel()


def prepare(*, least_level: str | None = None) -> Settings:
    """The settings, with logging as they want it; what looks like one and is none is pointed out."""
    settings = environment.read_settings()
    telemetry.set_up_logging(
        least_level or settings.log_level,
        as_json=settings.log_json,
        redact=redactor_of(settings, os.environ),
    )
    for sentence in environment.unknown_variables(os.environ):
        log.warning("unknown_setting", detail=sentence)
    return settings


Work: TypeAlias = Callable[[StopSignal], Coroutine[Any, Any, None]]


def run(work: Work) -> None:
    """Do the work to its end, or until somebody wishes it to stop."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_stoppable(work))
    except _SENTENCES as error:
        _give_up(error)
    except BaseExceptionGroup as errors:
        expected, others = errors.split(_SENTENCES)
        if expected is None or others is not None:
            raise
        _give_up(_first(expected))


def _give_up(error: BaseException) -> NoReturn:
    """Libraries put addresses with their passwords into what they raise."""
    redact = redactor_of(environment.read_settings(), os.environ)
    exit_with(redact(str(error)))


async def _stoppable(work: Work) -> None:
    task = asyncio.current_task()
    assert task is not None
    stop, loop = StopSignal(task), asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.request)
    try:
        await work(stop)
    except asyncio.CancelledError:
        if not stop.is_wished:
            raise


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    return import_module("uvloop").new_event_loop  # type: ignore[no-any-return]  # a C module
