"""Failed calls are retried as often as their tool allows, under the same key."""

from typing import Any

import pytest

from app.domain.ids import CallId, RunId
from app.domain.runs.runs import Done, Lineage
from app.domain.runs.terminations import NaturalEnd
from app.domain.tools.tool_calls import CallStatus, Effect, ToolDescriptor, ToolResult
from app.llm.scripted.model import Call, turn
from app.runtime.ports.tool_context import ToolContext
from app.runtime.tool_calls import execute
from tests.support.plain_runs import PlainRun

pytestmark = pytest.mark.anyio


class Failing:
    """A tool that fails `failures` times, and records its contexts."""

    def __init__(
        self, failures: int, *, retries: int, effect: Any, may_be_retried: bool = True
    ) -> None:
        self.descriptor = ToolDescriptor(
            name="failing", description="", parameters={}, effect=effect, retries=retries
        )
        self._failures = failures
        self._may_be_retried = may_be_retried
        self.contexts: list[ToolContext] = []
        self.arguments: list[dict[str, Any]] = []

    def invalid_arguments(self, arguments: Any) -> str | None:
        return None

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        self.contexts.append(context)
        self.arguments.append(arguments)
        if len(self.contexts) <= self._failures:
            return ToolResult.error("failing", "no", may_be_retried=self._may_be_retried)
        return ToolResult.success("failing", "yes")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the pauses between tries, which take no time here."""
    made: list[float] = []

    async def at_once(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(execute, "sleep", at_once)
    return made


async def status_of(tool: Failing, arguments: Any = None, **of_record: Any) -> CallStatus:
    call = Call(tool="failing", arguments=arguments, id=CallId("c1"))
    run = PlainRun(turn(call), turn("Done."), tools=[tool])
    await run.start(**of_record)
    assert isinstance(run.rows.record.state, Done)
    assert run.rows.record.state.termination == NaturalEnd()
    [done] = run.events("tool_call_done")
    return CallStatus(done["result"]["outcome"])


@pytest.mark.parametrize(
    "failures, retries, tries, status",
    [
        (0, 3, 1, CallStatus.SUCCEEDED),
        (1, 0, 1, CallStatus.FAILED),
        (1, 1, 2, CallStatus.SUCCEEDED),
        (2, 1, 2, CallStatus.FAILED),
        (2, 2, 3, CallStatus.SUCCEEDED),
        (9, 3, 4, CallStatus.FAILED),
    ],
)
@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
async def test_a_call_is_retried_as_often_as_its_tool_allows(
    pauses: list[float],
    effect: Effect,
    failures: int,
    retries: int,
    tries: int,
    status: CallStatus,
) -> None:
    tool = Failing(failures, retries=retries, effect=effect)
    assert await status_of(tool) is status
    assert len(tool.contexts) == tries
    assert len({context.idempotency_key for context in tool.contexts}) == 1
    assert len(pauses) == tries - 1


async def test_pauses_between_tries_double_up_to_the_longest(pauses: list[float]) -> None:
    await status_of(Failing(9, retries=7, effect=Effect.READ))
    first, longest = execute.FIRST_PAUSE_SECONDS, execute.MAX_PAUSE_SECONDS
    assert pauses == [min(first * 2**number, longest) for number in range(7)]
    assert pauses[-1] == longest


async def test_unsafe_calls_and_permanent_errors_are_not_retried(
    pauses: list[float],
) -> None:
    for tool in (
        Failing(9, retries=3, effect=Effect.UNSAFE),
        Failing(9, retries=3, effect=Effect.READ, may_be_retried=False),
    ):
        assert await status_of(tool) is CallStatus.FAILED
        assert len(tool.contexts) == 1
    assert pauses == []


async def test_a_tool_knows_its_run_its_call_and_its_parents() -> None:
    tool = Failing(0, retries=0, effect=Effect.READ)
    await status_of(tool, {"a": 1})
    [context] = tool.contexts
    assert tool.arguments == [{"a": 1}]
    assert (context.call_id, context.tool_name) == ("c1", "failing")
    assert context.idempotency_key.endswith(":0:c1")
    assert (context.run.parent_run_id, context.run.parent_call_id) == (None, None)
    assert (context.resume_input, context.suspension_id, context.suspension_reason) == (
        None,
        None,
        None,
    )
    tool = Failing(0, retries=0, effect=Effect.READ)
    lineage = Lineage(RunId("root"), parent_run_id=RunId("parent"), parent_call_id="p1", depth=1)
    await status_of(tool, lineage=lineage)
    [context] = tool.contexts
    assert (context.run.parent_run_id, context.run.parent_call_id) == ("parent", "p1")
    assert tool.arguments == [{}]
