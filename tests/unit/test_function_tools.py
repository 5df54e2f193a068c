"""Functions as tools: what models see of them, how they run, and what becomes of what they return."""

import asyncio
import enum
import functools
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from app.domain.errors import ConfigurationError
from app.domain.events import AgentEvent, ToolCallStreamDelta
from app.domain.ids import CallId, RunId, ThreadId
from app.domain.json_values import Json
from app.domain.tool_calls import Effect, ResultStatus, SuspensionRequest, ToolResult
from app.runtime.ports import Tool, ToolContext
from app.runtime.state import Change, StateKey
from app.tools.bounds import MAX_ERROR_CHARACTERS, cut_to_bytes
from app.tools.failures import ToolFailed
from app.tools.functions import FunctionTool, tool
from app.tools.parameters import InvalidArguments

pytestmark = pytest.mark.anyio

NOTE: ContextVar[str] = ContextVar("NOTE")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


class Item(BaseModel):
    name: str
    next: "Item | None" = None


@tool(effect="read", timeout=5)
async def search(
    query: str,
    since: date,
    ctx: ToolContext,
    limit: int = 10,
    color: Color = Color.RED,
    kind: Literal["a", "b"] | None = None,
    points: list[Point] | None = None,
    item: Item | None = None,
    schema: Annotated[int, Field(gt=3, description="said by the annotation")] = 5,
    _private: Any = None,
) -> dict[str, Any]:
    """Search for something.

    Args:
        query: what to look for
        limit: how many at most
        schema: not this text
    """
    return {"called": repr((query, since, limit, color, kind, points, item, schema, _private))}


@tool
def idle() -> None: ...


def context(said: list[AgentEvent] | None = None) -> ToolContext:
    return ToolContext(
        run_id=RunId("run"),
        thread_id=ThreadId("thread"),
        call_id=CallId("call"),
        tool_name="tool",
        idempotency_key="run:1:call",
        say=(said if said is not None else []).append,
    )


async def text_of(function: Callable[..., Any], arguments: Json = None) -> str:
    """What the model would read after a call."""
    return (await tool(function).execute(arguments, context())).text


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            turn = asyncio.Event()
            asyncio.get_running_loop().call_soon(turn.set)
            await turn.wait()


# --- what a model sees ----------------------------------------------------------------------------


def test_the_signature_becomes_the_schema() -> None:
    schema = dict(search.descriptor.parameters)
    assert set(schema.pop("$defs")) == {"Color", "Item", "Point"}
    assert schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for"},
            "since": {"type": "string", "format": "date"},
            "limit": {"type": "integer", "default": 10, "description": "how many at most"},
            "color": {"$ref": "#/$defs/Color", "default": "red"},
            "kind": {
                "anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}],
                "default": None,
            },
            "points": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/Point"}},
                    {"type": "null"},
                ],
                "default": None,
            },
            "item": {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}], "default": None},
            "schema": {
                "type": "integer",
                "exclusiveMinimum": 3,
                "default": 5,
                "description": "said by the annotation",
            },
            "_private": {"default": None},
        },
        "required": ["query", "since"],
        "additionalProperties": False,
    }


def test_the_docstring_becomes_the_description() -> None:
    assert search.descriptor.description == "Search for something."
    assert tool(description="Other.")(search.function).descriptor.description == "Other."


def test_a_tool_is_named_after_its_function_unless_told_otherwise() -> None:
    assert search.descriptor.name == "search"
    assert tool(name="find")(search.function).descriptor.name == "find"


def test_effect_and_timeout_are_on_the_descriptor() -> None:
    assert search.descriptor.effect is Effect.READ
    assert search.descriptor.timeout == 5
    assert idle.descriptor.effect is Effect.UNSAFE
    assert idle.descriptor.timeout is None


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    assert idle.descriptor.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_a_default_without_a_json_form_is_only_left_out_of_the_schema() -> None:
    @tool
    def marked(value: Any = object()) -> None: ...

    assert marked.descriptor.parameters["properties"] == {"value": {}}


def test_annotations_as_strings_are_read() -> None:
    @tool
    def later(value: "int", ctx: "ToolContext | None" = None) -> "str":
        return str(value)

    assert later.descriptor.parameters["properties"] == {"value": {"type": "integer"}}


def test_a_tool_can_be_called_like_its_function() -> None:
    @tool
    def double(value: int) -> int:
        return 2 * value

    as_tool: Tool = double
    assert double(21) == 42
    assert as_tool.descriptor.name == "double"


# --- what can't be a tool -------------------------------------------------------------------------


def _takes_any(*args: int) -> None: ...


def _takes_options(**options: int) -> None: ...


def _takes_positions(a: int, /) -> None: ...


def _takes_a_function(a: Callable[[], None]) -> None: ...


def _takes_a_thread(a: threading.Thread) -> None: ...


def _names_the_unknown(a: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821  the case


def _yields() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tool(_takes_any), r"'\*args: int' can't be given by name"),
        (lambda: tool(_takes_options), r"'\*\*options: int' can't be given by name"),
        (lambda: tool(_takes_positions), "'a: int' can't be given by name"),
        (lambda: tool(_takes_a_function), "can't be described to a model"),
        (lambda: tool(_takes_a_thread), "can't be described to a model"),
        (lambda: tool(_names_the_unknown), "must be importable"),
        (lambda: tool(_yields), "it yields, but a tool returns"),
        (lambda: tool(Item), "belongs on a function"),
        (lambda: tool(name="two words")(idle.function), "give another one"),
        (lambda: tool(name="")(idle.function), "give another one"),
        (lambda: tool(name="x" * 65)(idle.function), "give another one"),
        (lambda: tool(timeout=0)(idle.function), "timeout must be"),
        (lambda: tool(timeout=float("inf"))(idle.function), "timeout must be"),
        (lambda: tool(timeout=float("nan"))(idle.function), "timeout must be"),
        (lambda: tool(max_result_bytes=0)(idle.function), "max_result_bytes must be"),
        (lambda: tool(effect="safe")(idle.function), "isn't one of read, idempotent, unsafe"),  # type: ignore[call-overload]  # the case
        (
            lambda: tool(response_schema={"$ref": "http://127.0.0.1:1/x"})(idle.function),
            r"response_schema: .*nothing is fetched",
        ),
    ],
)
def test_what_cannot_be_a_tool_is_refused_when_it_is_defined(
    make: Callable[[], object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^tool .*{said}"):
        make()


# --- arguments ------------------------------------------------------------------------------------


async def test_arguments_arrive_as_what_the_function_is_annotated_with() -> None:
    result = await search.execute(
        {
            "query": "q",
            "since": "2026-11-18",
            "color": "green",
            "points": [{"x": 1}],
            "item": {"name": "a", "next": {"name": "b"}},
            "_private": [1],
        },
        context(),
    )
    item = Item(name="a", next=Item(name="b"))
    expected = ("q", date(2026, 11, 18), 10, Color.GREEN, None, [Point(1)], item, 5, [1])
    assert result == ToolResult.success("search", {"called": repr(expected)})


async def test_what_is_left_out_gets_the_functions_own_default() -> None:
    marker = object()

    def same(value: Any = marker, made: Annotated[list[int], Field()] = []) -> bool:  # noqa: B006  the case
        return value is marker and made == []

    assert await text_of(same) == "true"


async def test_pydantics_way_to_write_a_default_works_too() -> None:
    def add(a: int = Field(default=1, description="one"), b: list[int] = Field([2])) -> int:
        return a + b[0]

    assert tool(add).descriptor.parameters["properties"]["a"]["description"] == "one"
    assert await text_of(add) == "3"


async def test_null_stands_for_no_arguments() -> None:
    assert idle.invalid_arguments(None) is None
    assert (await idle.execute(None, context())).status is ResultStatus.SUCCESS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, '"query" is a required property; "since" is a required property'),
        ({"query": 1, "since": "2026-11-18"}, 'query: the value is not of type "string"'),
        ({"query": "q", "since": "soon"}, "since: Input should be a valid date"),
        ({"query": "q", "since": "2026-11-18", "ctx": {}}, "'ctx' was unexpected"),
        ("text", 'the value is not of type "object"'),
        ([], 'the value is not of type "object"'),
    ],
)
async def test_arguments_that_break_the_schema_are_explained(arguments: Json, said: str) -> None:
    problem = search.invalid_arguments(arguments)
    assert problem is not None
    assert said in problem
    result = await search.execute(arguments, context())
    assert result == ToolResult.error("search", f"Invalid arguments: {problem}")


async def test_a_types_own_validator_is_asked_before_anything_runs() -> None:
    def refuse(value: str) -> str:
        raise KeyError("never")

    @tool
    def guarded(value: Annotated[str, AfterValidator(refuse)]) -> None:
        raise AssertionError

    assert guarded.invalid_arguments({"value": "a"}) == "'never'"


async def test_a_tool_may_refuse_arguments_itself() -> None:
    async def open_file(path: str) -> None:
        raise InvalidArguments("no such file")

    assert await text_of(open_file, {"path": "x"}) == "Invalid arguments: no such file"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["query", "since", "points", "item", "x", "name", "next"]), inner
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_either_explained_or_converted(arguments: Any) -> None:
    problem = search.invalid_arguments(arguments)
    if problem is None:
        assert set(search.parameters.read(arguments)) >= {"query", "since"}
    else:
        assert 0 < len(problem) <= 500


# --- the context ----------------------------------------------------------------------------------


async def test_the_context_is_handed_to_whoever_asks_for_it() -> None:
    async def which(ctx: ToolContext, other: ToolContext | None = None) -> list[str]:
        assert other is not None
        return [ctx.call_id, other.idempotency_key]

    assert tool(which).descriptor.parameters["properties"] == {}
    assert await text_of(which) == '["call","run:1:call"]'


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_what_a_tool_says_is_heard_in_order_on_the_loop(kind: str) -> None:
    heard: list[tuple[AgentEvent, int]] = []
    loud = replace(context(), say=lambda event: heard.append((event, threading.get_ident())))

    def count(ctx: ToolContext) -> None:
        for number in range(3):
            ctx.stream_output(str(number))

    async def count_async(ctx: ToolContext) -> None:
        count(ctx)

    counter: FunctionTool[..., object] = tool(count) if kind == "sync" else tool(count_async)
    await counter.execute({}, loud)
    here = threading.get_ident()
    assert heard == [(ToolCallStreamDelta("call", "tool", text), here) for text in "012"]


async def test_what_a_tool_says_after_its_end_is_dropped() -> None:
    said: list[AgentEvent] = []
    kept: list[ToolContext] = []

    async def talk(ctx: ToolContext) -> None:
        kept.append(ctx)
        ctx.stream_output("in time")

    await tool(talk).execute({}, context(said))
    kept[0].stream_output("too late")
    assert said == [ToolCallStreamDelta("call", "tool", "in time")]
    assert kept[0].over.is_set()


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
async def test_whatever_a_tool_raises_becomes_an_error_result(
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
    assert ended[0].over.is_set()


async def test_cancellation_leaves_a_plain_function_behind() -> None:
    started, release, over = threading.Event(), threading.Event(), threading.Event()

    def block(ctx: ToolContext) -> None:
        started.set()
        assert ctx.over.wait(5)
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


async def test_a_tool_that_hides_its_time_out_has_timed_out_all_the_same() -> None:
    @tool(timeout=0.01)
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("something else") from None

    assert (await wait.execute({}, context())).text == "Timed out after 0.01 s"


async def test_what_a_plain_function_returns_or_says_too_late_is_dropped() -> None:
    said: list[AgentEvent] = []
    release, finished = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def block(ctx: ToolContext) -> str:
        assert release.wait(5)
        assert ctx.over.is_set()
        ctx.stream_output("too late")
        finished.set()
        return "too late"

    result = await block.execute({}, context(said))
    assert result == ToolResult.error("block", "Timed out after 0.01 s")
    release.set()
    await until(finished.is_set)
    assert said == []


# --- results --------------------------------------------------------------------------------------


class Reading(BaseModel):
    at: datetime
    value: float


@pytest.mark.parametrize(
    ("returned", "data", "text"),
    [
        ("plain", "plain", "plain"),
        ("", "", ""),
        (None, None, "null"),
        (7, 7, "7"),
        (True, True, "true"),
        ([1, "a"], [1, "a"], '[1,"a"]'),
        ({"a": {"b": None}}, {"a": {"b": None}}, '{"a":{"b":null}}'),
        ((1, 2), [1, 2], "[1,2]"),
        (Point(1, 2), {"x": 1, "y": 2}, '{"x":1,"y":2}'),
        ([Color.RED], ["red"], '["red"]'),
        (Decimal("1.5"), "1.5", "1.5"),
        ({"p": Path("a/b")}, {"p": "a/b"}, '{"p":"a/b"}'),
        (
            Reading(at=datetime(2026, 11, 18, tzinfo=UTC), value=float("nan")),
            {"at": "2026-11-18T00:00:00Z", "value": None},
            '{"at":"2026-11-18T00:00:00Z","value":null}',
        ),
        ([float("inf"), "NaN"], [None, "NaN"], '[null,"NaN"]'),
        ("a\0b\ud800", "a\ufffdb\ufffd", "a\ufffdb\ufffd"),
    ],
)
async def test_what_a_tool_returns_becomes_json(returned: Any, data: Json, text: str) -> None:
    async def give() -> Any:
        return returned

    result = await tool(give).execute({}, context())
    assert result == ToolResult.success("give", data)
    assert result.text == text


_CIRCLE: list[Any] = []
_CIRCLE.append(_CIRCLE)


@pytest.mark.parametrize("returned", [object(), {"a": threading.Lock()}, b"\xff", _CIRCLE])
async def test_what_json_cannot_hold_is_an_error_that_says_so(returned: Any) -> None:
    async def give() -> Any:
        return returned

    result = await tool(give).execute({}, context())
    assert result.status is ResultStatus.ERROR
    assert f"value of type {type(returned).__name__} that isn't JSON" in result.text


async def test_a_result_of_the_tools_own_making_is_kept() -> None:
    async def give() -> ToolResult:
        return ToolResult("give", ResultStatus.ERROR, {"code": 7}, "try later")

    result = await tool(give).execute({}, context())
    assert result == ToolResult("give", ResultStatus.ERROR, {"code": 7}, "try later")


@pytest.mark.parametrize("returned", ["ä" * 1_000, ["ä" * 1_000], Reading.__name__ * 1_000])
async def test_a_result_that_is_too_large_is_cut_and_says_so(returned: Any) -> None:
    @tool(max_result_bytes=101)
    async def give() -> Any:
        return returned

    result = await give.execute({}, context())
    assert isinstance(result.data, str)
    head, note = result.data.split("\n")
    assert 99 < len(head.encode()) <= 101
    assert note.startswith("[Truncated: the result has ")


async def test_a_result_that_just_fits_keeps_its_shape() -> None:
    @tool(max_result_bytes=6)
    async def give() -> list[str]:
        return ["ä"]

    assert (await give.execute({}, context())).data == ["ä"]


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_cut_text_stays_text_within_its_bound(text: str, limit: int) -> None:
    cut = cut_to_bytes(text, limit)
    if cut != text:
        assert len(text.encode()) > limit
        assert text.startswith(cut.rpartition("\n")[0])
        assert len(cut.rpartition("\n")[0].encode()) <= limit


async def test_a_wish_to_suspend_is_a_pending_result() -> None:
    async def ask(ctx: ToolContext) -> SuspensionRequest:
        return ctx.suspend("Sure?", response_schema={"type": "string"})

    result = await tool(ask).execute({}, context())
    assert result == ToolResult.suspended(
        "ask", SuspensionRequest("Sure?", response_schema={"type": "string"})
    )


async def test_a_tools_response_schema_holds_when_it_asks_without_one() -> None:
    @tool(response_schema={"type": "boolean"})
    async def ask(ctx: ToolContext) -> SuspensionRequest:
        return ctx.suspend("Sure?")

    result = await ask.execute({}, context())
    assert result.suspension is not None
    assert result.suspension.response_schema == {"type": "boolean"}


async def test_a_question_with_a_broken_schema_is_an_error() -> None:
    async def ask(ctx: ToolContext) -> SuspensionRequest:
        return ctx.suspend("Sure?", response_schema={"$ref": "http://127.0.0.1:1/x"})

    result = await tool(ask).execute({}, context())
    assert result.status is ResultStatus.ERROR
    assert "nothing is fetched" in result.text


@pytest.mark.parametrize(
    "message, asked", [("Which?", "Which?"), (None, "Tool 'ask' suspended: awaiting decision")]
)
async def test_a_pending_result_without_a_question_is_one(message: str | None, asked: str) -> None:
    async def ask() -> ToolResult:
        return ToolResult("ask", ResultStatus.PENDING, message=message)

    result = await tool(ask).execute({}, context())
    assert result == ToolResult.suspended("ask", SuspensionRequest(asked))


async def test_a_result_may_say_more_to_programs_than_to_the_model() -> None:
    async def look() -> ToolResult:
        return ToolResult.success("elsewhere", {"n": 1}, "one").with_metadata(source="cache")

    result = await tool(look).execute({}, context())
    assert result.text == "one"
    assert result.to_json() == {
        "tool_name": "look",
        "status": "success",
        "data": {"n": 1},
        "message": "one",
        "metadata": {"source": "cache"},
    }


async def test_metadata_without_bound_is_an_error() -> None:
    @tool(max_result_bytes=100)
    async def look() -> ToolResult:
        return ToolResult.success("look", 1).with_metadata(source="x" * 200)

    result = await look.execute({}, context())
    assert result.status is ResultStatus.ERROR
    assert "metadata" in result.text


async def test_a_tool_that_fails_on_purpose_says_so_with_a_code() -> None:
    async def order() -> None:
        raise ToolFailed("sold_out", "None are left.", may_be_retried=False)

    result = await tool(order).execute({}, context())
    assert result == ToolResult.error_with_code("order", "sold_out", "None are left.")
    assert (result.text, result.may_be_retried) == ("[sold_out] None are left.", False)
    assert result.resumed_payload() == {"error": "[sold_out] None are left."}


def test_a_sync_tool_changes_the_state_from_its_thread() -> None:
    key: StateKey[int, int] = StateKey("count", lambda: 0)
    changes: list[Change] = []

    @tool
    def count(ctx: ToolContext) -> int:
        ctx.update(key, ctx.state(key) + 1)
        return threading.get_ident()

    ours = replace(context(), change=changes.append)
    result = asyncio.run(count.execute({}, ours))
    assert result.data != threading.get_ident()
    assert changes == [Change(key, 1)]
