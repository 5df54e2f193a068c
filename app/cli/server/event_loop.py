"""Runs a command in an event loop, stops it on signals, and turns expected errors into a sentence."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, TypeAlias, TypeVar

import structlog
import typer

from app.bootstrap.secrets import redactor_of
from app.cli import environment
from app.cli.exit_codes import exit_with
from app.cli.server.log_output import set_up_logging
from app.domain.errors import ConfigurationError, DatabaseUnusable
from app.settings import Settings

R = TypeVar("R")

log = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXPECTED_ERRORS = (ConfigurationError, DatabaseUnusable)


class StopSignal:
    """A request to stop, by Ctrl-C or SIGTERM.

    The first one calls the handler for a graceful stop. Without a handler, and at the second one, the task is
    cancelled, which still closes what it has opened.
    """

    def __init__(self, work: "asyncio.Task[Any]") -> None:
        self._work = work
        self._graceful_stop: Callable[[], None] | None = None
        self.is_requested = False

    def on_request(self, handler: Callable[[], None]) -> None:
        self._graceful_stop = handler

    def request(self) -> None:
        handler, self._graceful_stop = self._graceful_stop, None
        if not self.is_requested:
            # A closed stderr must not keep the process from stopping.
            with suppress(OSError):
                typer.echo("holdfast: stopping …", err=True)
        self.is_requested = True
        if handler is not None:
            handler()
        else:
            self._work.cancel()


def prepare(*, least_level: str | None = None, **options: object) -> Settings:
    """Read the settings, set up logging, and warn about unknown settings.

    `options` are settings from the command line; those that aren't None win over the environment.
    """
    settings = environment.read_settings(**options)
    set_up_logging(
        least_level or settings.log_level,
        as_json=settings.log_json,
        redact=redactor_of(settings, os.environ),
    )
    for sentence in environment.unknown_variables(os.environ):
        log.warning("unknown_setting", detail=sentence)
    return settings


Work: TypeAlias = Callable[[StopSignal], Coroutine[Any, Any, None]]


def run(work: Work) -> None:
    """Run the work until it ends or is stopped by a signal."""

    def in_loop() -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_stoppable(work))

    with_expected_errors(in_loop)


def with_expected_errors(work: Callable[[], R]) -> R:
    """Run the work. An expected error becomes a sentence, with which the process exits."""
    try:
        return work()
    except _EXPECTED_ERRORS as error:
        _exit(error)
    except BaseExceptionGroup as errors:
        expected, others = errors.split(_EXPECTED_ERRORS)
        if expected is None or others is not None:
            raise
        _exit(_first(expected))


def _exit(error: BaseException) -> NoReturn:
    """Exit with the error. It is redacted, because libraries put passwords of URLs into errors."""
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
        if not stop.is_requested:
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
