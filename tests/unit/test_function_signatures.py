"""Functions as tools: the schema of a signature, and how JSON becomes arguments."""

import enum
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from app.domain.errors import ConfigurationError
from app.domain.json_values import Json
from app.domain.tools.tool_calls import Effect, ResultStatus, ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.tools.functions.decorator import tool
from app.tools.functions.signature import InvalidArguments
from tests.support.calling import context, text_of

pytestmark = pytest.mark.anyio


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
    schema: Annotated[int, Field(gt=3, description="from the annotation")] = 5,
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
                "description": "from the annotation",
            },
            "_private": {"default": None},
        },
        "required": ["query", "since"],
        "additionalProperties": False,
    }


def test_the_docstring_becomes_the_description() -> None:
    assert search.descriptor.description == "Search for something."
    assert tool(description="Other.")(search.function).descriptor.description == "Other."


def test_a_tool_is_named_after_its_function_by_default() -> None:
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
    ("make", "sentence"),
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
def test_an_unsupported_signature_is_refused_at_definition(
    make: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^tool .*{sentence}"):
        make()


# --- arguments ------------------------------------------------------------------------------------


async def test_arguments_are_converted_to_their_annotated_types() -> None:
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


async def test_a_missing_argument_gets_the_default_of_the_function() -> None:
    marker = object()

    def same(value: Any = marker, made: Annotated[list[int], Field()] = []) -> bool:  # noqa: B006  the case
        return value is marker and made == []

    assert await text_of(same) == "true"


async def test_pydantics_way_to_write_a_default_works_too() -> None:
    def add(a: int = Field(default=1, description="one"), b: list[int] = Field([2])) -> int:
        return a + b[0]

    assert tool(add).descriptor.parameters["properties"]["a"]["description"] == "one"
    assert await text_of(add) == "3"


async def test_null_means_no_arguments() -> None:
    assert idle.invalid_arguments(None) is None
    assert (await idle.execute(None, context())).status is ResultStatus.SUCCESS


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, '"query" is a required property; "since" is a required property'),
        ({"query": 1, "since": "2026-11-18"}, 'query: the value is not of type "string"'),
        ({"query": "q", "since": "soon"}, "since: Input should be a valid date"),
        ({"query": "q", "since": "2026-11-18", "ctx": {}}, "'ctx' was unexpected"),
        ("text", 'the value is not of type "object"'),
        ([], 'the value is not of type "object"'),
    ],
)
async def test_arguments_that_break_the_schema_are_explained(
    arguments: Json, sentence: str
) -> None:
    problem = search.invalid_arguments(arguments)
    assert problem is not None
    assert sentence in problem
    result = await search.execute(arguments, context())
    assert result == ToolResult.error(
        "search", f"Invalid arguments: {problem}", may_be_retried=False
    )


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
