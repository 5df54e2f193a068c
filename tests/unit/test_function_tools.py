"""Functions as tools: how they run, emit events, fail and time out."""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from app.domain.events.agent_events import AgentEvent
from app.domain.events.tool_call_events import ToolCallStreamDelta
from app.domain.structs import replace
from app.domain.tools.tool_calls import ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.tools.functions.decorator import FunctionTool, tool
from app.tools.result_limits import MAX_ERROR_CHARACTERS
from tests.support.calling import context, text_of

pytestmark = pytest.mark.anyio

NOTE: ContextVar[str] = ContextVar("NOTE")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            turn = asyncio.Event()
            asyncio.get_running_loop().call_soon(turn.set)
            await turn.wait()


# --- the context ----------------------------------------------------------------------------------


async def test_a_function_with_a_context_parameter_gets_the_context() -> None:
    async def which(ctx: ToolContext, other: ToolContext | None = None) -> list[str]:
        assert other is not None
        return [ctx.call_id, other.idempotency_key]

    assert tool(which).descriptor.parameters["properties"] == {}
    assert await text_of(which) == '["call","run:1:call"]'


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_output_of_a_tool_is_emitted_in_order_on_the_loop(kind: str) -> None:
    received: list[tuple[AgentEvent, int]] = []
    loud = replace(context(), emit=lambda event: received.append((event, threading.get_ident())))

    def count(ctx: ToolContext) -> None:
        for number in range(3):
            ctx.stream_output(str(number))

    async def count_async(ctx: ToolContext) -> None:
        count(ctx)

    counter: FunctionTool[..., object] = tool(count) if kind == "sync" else tool(count_async)
    await counter.execute({}, loud)
    here = threading.get_ident()
    assert received == [(ToolCallStreamDelta("call", "tool", text), here) for text in "012"]


async def test_output_after_the_end_of_a_call_is_dropped() -> None:
    emitted: list[AgentEvent] = []
    contexts: list[ToolContext] = []

    async def talk(ctx: ToolContext) -> None:
        contexts.append(ctx)
        ctx.stream_output("in time")

    await tool(talk).execute({}, context(emitted))
    contexts[0].stream_output("too late")
    assert emitted == [ToolCallStreamDelta("call", "tool", "in time")]
    assert contexts[0].closed.is_set()


# --- plain functions ------------------------------------------------------------------------------


async def test_a_plain_function_blocks_its_thread_and_not_the_loop() -> None:
    started, release = threading.Event(), threading.Event()

    def block() -> int:
        started.set()
        assert release.wait(5)
        return threading.get_ident()

    async with asyncio.TaskGroup() as group:
        call = group.create_task(tool(block).execute({}, context()))
        await until(started.is_set)
        # The loop still turns while the function waits for exactly this:
        release.set()
    assert call.result().data != threading.get_ident()


async def test_a_plain_function_sees_the_callers_context_variables() -> None:
    def read_note() -> str:
        return NOTE.get()

    NOTE.set("seen")
    assert await text_of(read_note) == "seen"


async def test_a_plain_function_that_wraps_an_async_one_is_awaited() -> None:
    async def inner(value: int) -> int:
        return value + 1

    @functools.wraps(inner)
    def outer(value: int) -> Awaitable[int]:
        return inner(value)

    assert await text_of(outer, {"value": 1}) == "2"


# --- errors ---------------------------------------------------------------------------------------


class _Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("disk full"), "Execution failed: disk full"),
        (ValueError(), "Execution failed: ValueError"),
        (_Mute(), "Execution failed: _Mute"),
        (SystemExit(3), "Execution failed: 3"),
        (TimeoutError("the tool's own"), "Execution failed: the tool's own"),
        (asyncio.CancelledError(), "something that the tool waited for was cancelled"),
        (ExceptionGroup("both", [ValueError("a")]), "Execution failed: both (1 sub-exception)"),
        (StopIteration(), "StopIteration"),
    ],
)
async def test_every_exception_of_a_tool_becomes_an_error_result(
    kind: str, error: BaseException, text: str
) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    async with asyncio.timeout(5):
        assert text in await text_of(fail if kind == "sync" else fail_async)


async def test_the_text_of_an_error_is_bounded() -> None:
    async def fail() -> None:
        raise ValueError("x" * 1_000_000)

    text = await text_of(fail)
    assert len(text) == MAX_ERROR_CHARACTERS
    assert text.endswith("x…")


async def test_cancellation_passes_through_and_stops_the_tool() -> None:
    started, ended = asyncio.Event(), []

    async def wait(ctx: ToolContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(ctx)

    async with asyncio.TaskGroup() as group:
        call = group.create_task(tool(wait).execute({}, context()))
        await started.wait()
        call.cancel()
    assert call.cancelled()
    assert ended[0].closed.is_set()


async def test_cancellation_does_not_wait_for_a_plain_function() -> None:
    started, release, over = threading.Event(), threading.Event(), threading.Event()

    def block(ctx: ToolContext) -> None:
        started.set()
        assert ctx.closed.wait(5)
        over.set()
        assert release.wait(5)

    async with asyncio.TaskGroup() as group:
        call = group.create_task(tool(block).execute({}, context()))
        await until(started.is_set)
        call.cancel()
    assert call.cancelled()
    await until(over.is_set)
    release.set()


# --- time-outs ------------------------------------------------------------------------------------


async def test_an_async_tool_that_takes_too_long_is_stopped() -> None:
    stopped = asyncio.Event()

    @tool(timeout=0.01)
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    result = await wait.execute({}, context())
    assert result == ToolResult.error("wait", "Timed out after 0.01 s")
    assert stopped.is_set()


async def test_a_tool_that_catches_its_time_out_has_still_timed_out() -> None:
    @tool(timeout=0.01)
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("something else") from None

    assert (await wait.execute({}, context())).text == "Timed out after 0.01 s"


async def test_output_and_result_of_a_timed_out_plain_function_are_dropped() -> None:
    emitted: list[AgentEvent] = []
    release, finished = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def block(ctx: ToolContext) -> str:
        assert release.wait(5)
        assert ctx.closed.is_set()
        ctx.stream_output("too late")
        finished.set()
        return "too late"

    result = await block.execute({}, context(emitted))
    assert result == ToolResult.error("block", "Timed out after 0.01 s")
    release.set()
    await until(finished.is_set)
    assert emitted == []
