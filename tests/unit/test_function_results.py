"""Functions as tools: how return values become results."""

import asyncio
import enum
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app.domain.json_values import Json
from app.domain.structs import replace
from app.domain.tools.tool_calls import CallStatus, ResultStatus, SuspensionRequest, ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.runtime.state import Change, StateKey
from app.tools.functions.decorator import tool
from app.tools.functions.failure import ToolFailed
from app.tools.result_limits import cut_to_bytes
from tests.support.calling import context

pytestmark = pytest.mark.anyio


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: int


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
async def test_a_returned_value_becomes_json(returned: Any, data: Json, text: str) -> None:
    async def give() -> Any:
        return returned

    result = await tool(give).execute({}, context())
    assert result == ToolResult.success("give", data)
    assert result.text == text


_CIRCLE: list[Any] = []
_CIRCLE.append(_CIRCLE)


@pytest.mark.parametrize("returned", [object(), {"a": threading.Lock()}, b"\xff", _CIRCLE])
async def test_a_value_that_json_cannot_represent_is_an_error_with_its_reason(
    returned: Any,
) -> None:
    async def give() -> Any:
        return returned

    result = await tool(give).execute({}, context())
    assert result.status is ResultStatus.ERROR
    assert f"value of type {type(returned).__name__} that isn't JSON" in result.text


async def test_a_tool_result_object_is_returned_unchanged() -> None:
    async def give() -> ToolResult:
        return ToolResult("give", ResultStatus.ERROR, {"code": 7}, "try later")

    result = await tool(give).execute({}, context())
    assert result == ToolResult("give", ResultStatus.ERROR, {"code": 7}, "try later")


@pytest.mark.parametrize("returned", ["ä" * 1_000, ["ä" * 1_000], Reading.__name__ * 1_000])
async def test_a_result_that_is_too_large_is_truncated_and_marked(returned: Any) -> None:
    @tool(max_result_bytes=101)
    async def give() -> Any:
        return returned

    result = await give.execute({}, context())
    assert isinstance(result.data, str)
    head, note = result.data.split("\n")
    assert 99 < len(head.encode()) <= 101
    assert note.startswith("[Truncated: the result has ")


async def test_a_result_at_the_size_limit_is_unchanged() -> None:
    @tool(max_result_bytes=6)
    async def give() -> list[str]:
        return ["ä"]

    assert (await give.execute({}, context())).data == ["ä"]


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_truncated_text_stays_valid_within_its_bound(text: str, limit: int) -> None:
    cut = cut_to_bytes(text, limit)
    if cut != text:
        assert len(text.encode()) > limit
        assert text.startswith(cut.rpartition("\n")[0])
        assert len(cut.rpartition("\n")[0].encode()) <= limit


async def test_a_suspension_request_is_a_pending_result() -> None:
    async def ask(ctx: ToolContext) -> SuspensionRequest:
        return ctx.suspend("Sure?", response_schema={"type": "string"})

    result = await tool(ask).execute({}, context())
    assert result == ToolResult.suspended(
        "ask", SuspensionRequest("Sure?", response_schema={"type": "string"})
    )


async def test_a_question_without_a_schema_has_the_response_schema_of_its_tool() -> None:
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
async def test_a_pending_result_without_a_question_is_a_suspension(
    message: str | None, asked: str
) -> None:
    async def ask() -> ToolResult:
        return ToolResult("ask", ResultStatus.PENDING, message=message)

    result = await tool(ask).execute({}, context())
    assert result == ToolResult.suspended("ask", SuspensionRequest(asked))


async def test_the_data_of_a_result_may_differ_from_its_message_to_the_model() -> None:
    async def look() -> ToolResult:
        return ToolResult.success("elsewhere", {"n": 1}, "one").with_metadata(source="cache")

    result = await tool(look).execute({}, context())
    assert result.text == "one"
    assert result.tool_name == "look"
    assert result.to_json(CallStatus.SUCCEEDED) == {
        "status": "done",
        "outcome": "succeeded",
        "text": "one",
        "data": {"n": 1},
        "metadata": {"source": "cache"},
    }


async def test_metadata_without_bound_is_an_error() -> None:
    @tool(max_result_bytes=100)
    async def look() -> ToolResult:
        return ToolResult.success("look", 1).with_metadata(source="x" * 200)

    result = await look.execute({}, context())
    assert result.status is ResultStatus.ERROR
    assert "metadata" in result.text


async def test_a_tool_can_return_an_error_with_a_code() -> None:
    async def order() -> None:
        raise ToolFailed("sold_out", "None are left.", may_be_retried=False)

    result = await tool(order).execute({}, context())
    assert result == ToolResult.error_with_code(
        "order", "sold_out", "None are left.", may_be_retried=False
    )
    assert result.text == "[sold_out] None are left."


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
