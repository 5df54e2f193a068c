"""`@startup` and `deps`: what is refused, and in which order resources are closed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.domain.deps import DepsError
from app.domain.errors import ConfigurationError
from app.tools.functions.startup import StartupFunction, opened, startup
from holdfast import Deps

pytestmark = pytest.mark.anyio


async def test_a_context_manager_and_a_plain_coroutine_are_start_up_functions_too() -> None:
    seen: list[str] = []

    @startup
    @asynccontextmanager
    async def first(deps: Deps) -> AsyncIterator[None]:
        deps.first = 1
        yield
        seen.append("first closed")

    @startup
    async def second(deps: Deps) -> None:
        deps.second = deps.first + 1

    async with opened([first, second], timeout=30) as deps:
        assert (deps.first, deps.second) == (1, 2)
    assert seen == ["first closed"]


async def test_what_was_opened_is_closed_if_a_later_function_fails_or_the_process_does() -> None:
    seen: list[str] = []

    @startup
    async def first(deps: Deps) -> AsyncIterator[None]:
        seen.append("open")
        yield
        seen.append("closed")

    @startup
    async def second(deps: Deps) -> None:
        raise OSError("no network")

    with pytest.raises(ConfigurationError, match=r"test_startup_functions.py:\d+: second failed"):
        async with opened([first, second], timeout=30):
            raise AssertionError
    assert seen == ["open", "closed"]
    with pytest.raises(ZeroDivisionError):
        async with opened([first], timeout=30):
            raise ZeroDivisionError
    assert seen == ["open", "closed"] * 2


async def test_a_function_that_takes_too_long_is_named_with_the_line_where_it_was() -> None:
    seen: list[str] = []

    @startup
    async def first(deps: Deps) -> AsyncIterator[None]:
        yield
        seen.append("first closed")

    @startup
    async def second(deps: Deps) -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("second cancelled")
        yield

    with pytest.raises(ConfigurationError) as raised:
        async with opened([first, second], timeout=0.05):
            raise AssertionError
    line = second.line + 3
    assert f"startup_functions.py:{second.line}: second failed: it took longer than 0.05" in str(
        raised.value
    )
    assert f"(line {line} of test_startup_functions.py); correct it" in str(raised.value)
    assert seen == ["second cancelled", "first closed"]


async def test_a_timeout_of_the_functions_own_is_its_own_error() -> None:
    @startup
    async def connect(deps: Deps) -> None:
        raise TimeoutError("the bank does not answer")

    with pytest.raises(ConfigurationError, match="connect failed: TimeoutError: the bank does not"):
        async with opened([connect], timeout=30):
            raise AssertionError


async def test_an_error_while_closing_does_not_keep_the_others_open() -> None:
    seen: list[str] = []

    @startup
    async def first(deps: Deps) -> AsyncIterator[None]:
        yield
        seen.append("closed")

    @startup
    async def second(deps: Deps) -> AsyncIterator[None]:
        yield
        raise OSError("already closed")

    async with opened([first, second], timeout=30):
        pass
    assert seen == ["closed"]


async def test_resources_have_one_name_each_and_stay_as_they_are() -> None:
    @startup
    async def twice(deps: Deps) -> None:
        deps.pool = 1
        deps.pool = 2

    with pytest.raises(ConfigurationError, match="deps.pool is set already"):
        async with opened([twice], timeout=30):
            raise AssertionError

    async with opened([], timeout=30) as deps:
        with pytest.raises(DepsError, match="can only be set in a function with @startup"):
            deps.pool = 1
        with pytest.raises(DepsError, match=r"set it in a function with @startup: deps\.pool = …"):
            _ = deps.pool


def _plain(_deps: Deps) -> Any:
    yield


async def _without_parameter() -> None: ...


@pytest.mark.parametrize(
    ("function", "sentence"),
    [(_plain, "write it as `async def`"), (_without_parameter, "exactly one parameter")],
)
def test_other_functions_are_refused(function: Callable[..., Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        startup(function)


async def test_a_function_that_returns_something_else_is_refused() -> None:
    other: Any = startup(lambda deps: 5)  # type: ignore[arg-type,return-value]
    assert isinstance(other, StartupFunction)
    with pytest.raises(ConfigurationError, match="it returned int; write `async def`"):
        async with opened([other], timeout=30):
            raise AssertionError
