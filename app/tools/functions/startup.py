"""`@startup`: functions of an agents folder that open resources, such as pools and clients, for its tools.

Each process that executes runs calls them once, before its first run, and closes what they opened after its
last one.
"""

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import structlog
from msgspec import Struct

from app.domain.deps import Deps
from app.domain.errors import ConfigurationError

log = structlog.get_logger(__name__)

Opener: TypeAlias = Callable[
    [Deps], AsyncIterator[None] | AbstractAsyncContextManager[Any] | Awaitable[None]
]


class StartupFunction(Struct, frozen=True):
    """A function that opens resources, with the place of its definition."""

    function: Opener
    name: str
    file: str
    line: int

    def __call__(self, deps: Deps) -> Any:
        return self.function(deps)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}: {self.name}"

    async def open(self, deps: Deps) -> AbstractAsyncContextManager[Any] | None:
        """Run the function up to its `yield`. Returns what closes its resources, if anything does."""
        if inspect.isasyncgenfunction(self.function):
            opened: Any = asynccontextmanager(self.function)(deps)
        else:
            opened = self.function(deps)
        if isinstance(opened, AbstractAsyncContextManager):
            await opened.__aenter__()
            return opened
        if inspect.isawaitable(opened):
            await opened
            return None
        raise ConfigurationError(
            f"it returned {type(opened).__name__}; write `async def` with one `yield`"
        )


def startup(function: Opener, /) -> StartupFunction:
    """Open resources for the tools and plugins of the folder:

        @startup
        async def open_shop(deps):
            async with asyncpg.create_pool(DSN) as pool:
                deps.pool = pool
                yield

    Tools use `ctx.deps.pool`. The code after `yield` runs when the process stops, after its last run. A
    function without `yield` closes nothing.
    """
    name = getattr(function, "__name__", repr(function))
    code = inspect.unwrap(function).__code__ if inspect.isroutine(function) else None
    if code is None:
        raise ConfigurationError(f"{name!r}: @startup belongs on a function")
    if inspect.isgeneratorfunction(function):
        raise ConfigurationError(f"startup function {name!r}: write it as `async def`")
    if len(inspect.signature(function).parameters) != 1:
        raise ConfigurationError(
            f"startup function {name!r}: it must have exactly one parameter, such as `deps`"
        )
    return StartupFunction(function, name, code.co_filename, code.co_firstlineno)


@asynccontextmanager
async def opened(functions: Sequence[StartupFunction], *, timeout: float) -> AsyncIterator[Deps]:
    """Call the functions in their order, and close their resources in reverse order.

    Raises ConfigurationError with the file and line of a function that fails, or that takes longer than
    `timeout` seconds. What was opened before is closed.
    """
    deps = Deps()
    async with AsyncExitStack() as stack:
        for each in functions:
            try:
                closing = await _open_in_time(each, deps, timeout)
            except (Exception, SystemExit) as error:
                raise ConfigurationError(
                    f"{each.place} failed: {_text(error)}{_line_in(error, each.file)};"
                    " correct it, or what it needs, and start again"
                ) from error
            if closing is not None:
                stack.push_async_callback(_close, each, closing)
        deps.complete()
        yield deps


async def _open_in_time(
    function: StartupFunction, deps: Deps, timeout: float
) -> AbstractAsyncContextManager[Any] | None:
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await function.open(deps)
    except TimeoutError as error:
        if not limit.expired():
            raise
        # The cause has the line at which the function was cancelled.
        raise ConfigurationError(
            f"it took longer than {timeout:g} seconds (HOLDFAST_STARTUP_FUNCTION_TIMEOUT)"
        ) from error.__cause__


async def _close(function: StartupFunction, opened: AbstractAsyncContextManager[Any]) -> None:
    """Run the code after `yield`, also after an error elsewhere. Its own error is logged."""
    try:
        await opened.__aexit__(None, None, None)
    except (Exception, SystemExit):
        log.exception("resources_not_closed", function=function.place)


def _text(error: BaseException) -> str:
    return (
        str(error) if isinstance(error, ConfigurationError) else f"{type(error).__name__}: {error}"
    )


def _line_in(error: BaseException, file: str) -> str:
    """The line of the function's own file at which the error, or else its cause, occurred."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    if not frames and error.__cause__ is not None:
        return _line_in(error.__cause__, file)
    return f" (line {frames[-1].lineno} of {Path(file).name})" if frames else ""
