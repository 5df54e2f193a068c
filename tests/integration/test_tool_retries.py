"""Failing tools: retried where their effect allows it, and reported with their last failure."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled
from app.domain.threads.messages import Role
from app.llm.scripted.model import in_order, turn
from app.runtime.plugins import Plugin
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.runtime.state import MergeStrategy, StateKey
from app.tools.functions.decorator import tool
from app.tools.functions.failure import ToolFailed
from app.tools.functions.signature import InvalidArguments
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, of_type, open_replica

pytestmark = pytest.mark.anyio

TRIES: StateKey[list[int], int] = StateKey(
    "tries", list, lambda value, update: [*value, update], merge=MergeStrategy.COMMUTATIVE
)


class FlakyTool:
    """A tool with a given outcome per try. The last one is repeated."""

    def __init__(self, *tries: Callable[[], Any], retries: int = 2, **options: Any) -> None:
        self.keys: list[str] = []
        self.tried = asyncio.Event()
        self._tries = tries
        self._options = {"effect": "idempotent", "retries": retries, **options}

    @property
    def tool(self) -> Tool:
        async def flaky(ctx: ToolContext) -> Any:
            self.keys.append(ctx.idempotency_key)
            ctx.update(TRIES, len(self.keys))
            self.tried.set()
            done = self._tries[min(len(self.keys), len(self._tries)) - 1]()
            return await done if asyncio.iscoroutine(done) else done

        made: Tool = tool(**self._options)(flaky)
        return made


def fails(error: Exception) -> Callable[[], Any]:
    def failing() -> None:
        raise error

    return failing


async def hangs() -> None:
    await asyncio.Event().wait()


KEYS = Plugin(name="keys", keys=[TRIES])


async def outcome_of(url: str, flaky: FlakyTool) -> tuple[str, dict[str, Any], Run]:
    """The tool result of one call, its event, and the run."""
    script = in_order(turn(Probe(name="flaky").call("c1")), turn("done"))
    async with open_replica(url, an_agent(flaky.tool, plugins=[KEYS]), script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        [text] = [e.message.text for e in await run.log() if e.message.role is Role.TOOL]
        [done] = of_type(emitted, "tool_call_done")
        stored = (await run.now()).run_state or {}
    return text, {**done, "state": stored["extensions"].get("tries")}, run


async def test_a_failed_call_is_retried_under_its_key(database_url: str) -> None:
    flaky = FlakyTool(fails(ValueError("one")), fails(ValueError("two")), lambda: "three")
    text, done, _ = await outcome_of(database_url, flaky)
    assert text == "three"
    assert len(flaky.keys) == 3
    assert len(set(flaky.keys)) == 1
    # The state changes of failed tries are dropped.
    assert done["state"] == [3]


async def test_the_model_reads_the_result_of_the_last_try(database_url: str) -> None:
    flaky = FlakyTool(*(fails(ValueError(word)) for word in ("one", "two", "three", "four")))
    text, done, _ = await outcome_of(database_url, flaky)
    assert text == "Execution failed: three"
    assert done["result"]["outcome"] == "failed"
    assert len(flaky.keys) == 3


async def test_a_try_that_times_out_is_retried_like_other_failures(database_url: str) -> None:
    flaky = FlakyTool(hangs, lambda: "quick", timeout=0.05)
    text, _, _ = await outcome_of(database_url, flaky)
    assert (text, len(flaky.keys)) == ("quick", 2)


@pytest.mark.parametrize(
    "error, reported",
    [
        (InvalidArguments("the city doesn't exist"), "Invalid arguments: the city doesn't exist"),
        (ToolFailed("gone", "The city is gone.", may_be_retried=False), "[gone] The city is gone."),
    ],
)
async def test_a_permanent_failure_is_not_retried(
    database_url: str, error: Exception, reported: str
) -> None:
    flaky = FlakyTool(fails(error))
    text, _, _ = await outcome_of(database_url, flaky)
    assert (text, len(flaky.keys)) == (reported, 1)


async def test_the_event_of_a_failure_has_its_code(database_url: str) -> None:
    flaky = FlakyTool(fails(ToolFailed("quota", "Try tomorrow.")), retries=0, effect="unsafe")
    text, done, _ = await outcome_of(database_url, flaky)
    assert text == "[quota] Try tomorrow."
    assert done["result"] == {
        "status": "done",
        "outcome": "failed",
        "text": "[quota] Try tomorrow.",
        "data": {"error": {"code": "quota", "message": "Try tomorrow."}},
    }


async def test_a_suspension_does_not_count_as_a_failure(database_url: str) -> None:
    probe = Probe(asks=1, effect="idempotent")
    script = in_order(turn(probe.call("c1")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        emitted = await (await replica.start()).finished()
    assert emitted[-1]["termination"] == {"type": "suspended"}
    assert len(probe.handed) == 1


async def test_a_cancel_does_not_wait_for_the_next_try(database_url: str) -> None:
    flaky = FlakyTool(fails(ValueError("again")), retries=10)
    script = in_order(turn(Probe(name="flaky").call("c1")))
    async with open_replica(database_url, an_agent(flaky.tool, plugins=[KEYS]), script) as replica:
        run = await replica.start()
        await asyncio.wait_for(flaky.tried.wait(), 15)
        await run.cancel("enough")
        await run.finished()
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("enough")


@pytest.mark.parametrize("retries, effect", [(1, "unsafe"), (-1, "read"), (11, "read")])
def test_invalid_retries_are_refused_at_the_definition(retries: int, effect: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"tool 'later': .*(retries|tried again)"):

        @tool(retries=retries, effect=effect)
        def later() -> None: ...


@pytest.mark.parametrize("effect", ["read", "idempotent"])
def test_retries_are_part_of_the_tool_descriptor(effect: Any) -> None:
    @tool(retries=3, effect=effect)
    def later() -> None: ...

    assert later.descriptor.retries == 3
