"""Reconcilers: their parameters, and what each answer means for the call."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.ids import CallId
from app.domain.runs.run_info import run_info
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, Happened, ReconciledResult
from app.domain.tools.tool_calls import ResultStatus, ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.runtime.tool_calls.interrupted import can_reconcile
from app.tools.functions.decorator import FunctionTool, tool
from app.tools.functions.results import result_of
from tests.support.records import a_record

pytestmark = pytest.mark.anyio

KEY = "run:0:c1"
ARGUMENTS = {"amount": 5}


def paying(reconcile: Callable[..., Any] | None, timeout: float | None = None) -> Any:
    @tool(reconcile=reconcile, timeout=timeout)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    return pay


def context() -> ToolContext:
    return ToolContext(
        run=run_info(a_record()),
        call_id=CallId("c1"),
        tool_name="pay",
        idempotency_key=KEY,
        emit=lambda _: None,
    )


async def found_by(
    reconcile: Callable[..., Any] | None, timeout: float | None = None
) -> ReconciledResult:
    made: FunctionTool[..., Any] = paying(reconcile, timeout)
    return await made.reconcile(ARGUMENTS, context())


async def test_a_reconciled_result_equals_one_that_the_tool_returned() -> None:
    async def asked(key: str) -> Happened:
        return Happened({"receipt": key, "on": {1}})

    made = paying(asked)
    found = await made.reconcile(ARGUMENTS, context())
    assert found == result_of(made.descriptor, {"receipt": KEY, "on": {1}}, 1000)
    assert isinstance(found, ToolResult)
    assert found.data == {"receipt": KEY, "on": [1]}


async def test_a_plain_function_may_have_the_arguments_and_the_context() -> None:
    def asked(key: str, ctx: ToolContext, arguments: dict[str, Any], more: int = 3) -> Happened:
        return Happened([key, ctx.call_id, arguments, more])

    found = await found_by(asked)
    assert isinstance(found, ToolResult)
    assert found.data == [KEY, "c1", ARGUMENTS, 3]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (DidNotHappen(), DidNotHappen()),
        (DontKnow("the bank is closed"), DontKnow("the bank is closed")),
        (None, DontKnow()),
    ],
)
async def test_each_answer_of_a_reconciler_has_its_meaning(
    answer: object, found: ReconciledResult
) -> None:
    assert await found_by(lambda key: answer) == found


@pytest.mark.parametrize("answer", [True, "yes", ToolResult.success("pay", "yes")])
async def test_any_other_return_value_of_a_reconciler_is_unknown(answer: object) -> None:
    found = await found_by(lambda key: answer)
    assert isinstance(found, DontKnow)
    assert found.why is not None
    assert f"a value of type {type(answer).__name__}" in found.why


async def test_a_suspension_request_is_no_answer_of_a_reconciler() -> None:
    def asked(key: str, ctx: ToolContext) -> Happened:
        return Happened(ctx.suspend("Has it?"))

    assert await found_by(asked) == DontKnow("its tool was asked and answered with a question")


async def test_a_reconciler_that_raises_gives_an_unknown_outcome_with_the_reason() -> None:
    def asked(key: str) -> Happened:
        raise ConnectionError("no line to the bank")

    assert await found_by(asked) == DontKnow("its tool was asked and failed: no line to the bank")


async def test_a_reconciler_that_times_out_gives_an_unknown_outcome_with_the_reason() -> None:
    async def asked(key: str) -> Happened:
        await asyncio.Event().wait()
        return Happened()

    found = await found_by(asked, timeout=0.05)
    assert found == DontKnow("its tool was asked and didn't answer within 0.05 s")


async def test_a_result_that_cannot_be_stored_is_an_error_of_the_call() -> None:
    found = await found_by(lambda key: Happened(object()))
    assert isinstance(found, ToolResult)
    assert found.status is ResultStatus.ERROR


async def test_a_tool_without_a_reconciler_gives_no_answer() -> None:
    assert await found_by(None) == DontKnow()
    assert not can_reconcile(paying(None))
    assert can_reconcile(paying(lambda key: None))


def _no_key() -> None: ...
def _any_number(*keys: str) -> None: ...
def _too_much(key: str, amount: int) -> None: ...
def _two_contexts(key: str, one: ToolContext, other: ToolContext) -> None: ...


@pytest.mark.parametrize(
    "function", [_no_key, _any_number, _too_much, _two_contexts, "no function"]
)
def test_a_reconciler_with_a_wrong_signature_is_refused_at_load(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="tool 'pay': reconcile: "):
        paying(function)
