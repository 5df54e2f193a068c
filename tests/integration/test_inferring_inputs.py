"""A run whose row names no input: it is inferred and recorded with the run's next checkpoint."""

import json

import pytest

from app.domain.json_values import JsonObject
from app.domain.runs.runs import MessageInput
from app.domain.threads.messages import MessageRange
from app.llm.scripted.model import in_order, turn
from tests.support.echo_backend import Echo
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, open_replica

pytestmark = pytest.mark.anyio

_FORGET = """
UPDATE runs SET input_from = NULL, input_to = NULL, input_ids = '{}', request = $2::text::jsonb
WHERE id = $1
"""


async def _forget_input(run: Run, request: JsonObject) -> None:
    await run.replica.database.pool.execute(_FORGET, run.id, json.dumps(request))
    assert (await run.now()).input is None


async def test_an_input_that_was_not_recorded_is_inferred_from_the_request(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(turn("before"), turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        first = await replica.start("one")
        await first.finished()
        run = await replica.start("two", thread_id=first.thread_id)
        await run.finished()
        record = await run.now()
        assert record.input is not None
        await _forget_input(run, record.request)
        await run.decide("perm_c1", "approve")
        await run.finished(2)
        after = await run.now()
    assert after.input == record.input
    assert after.input is not None
    assert after.input.range == MessageRange(3, 3)
    assert after.output.range is not None
    assert after.output.range.from_seq == 4
    assert await broken_invariants(database_url) == {}


@pytest.mark.parametrize(
    "request_, expected",
    [({"input_message_count": 1}, MessageRange(3, 3)), ({}, MessageRange(1, 3))],
    ids=["by its count", "by the initial messages"],
)
async def test_an_input_without_ids_is_inferred_from_the_log_before_the_run(
    database_url: str, request_: JsonObject, expected: MessageRange
) -> None:
    probe = Probe()
    script = in_order(turn("before"), turn(probe.call("c1")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        first = await replica.start("one")
        await first.finished()
        run = await replica.start("two", thread_id=first.thread_id)
        await run.finished()
        await _forget_input(run, request_)
        await run.decide("perm_c1", "approve")
        await run.finished(2)
        assert (await run.now()).input == MessageInput(expected)


async def test_the_input_of_a_remote_run_is_inferred_too(database_url: str) -> None:
    echo = Echo()
    async with open_replica(
        database_url, echo.catalog, in_order(), backends=echo.backends
    ) as replica:
        run = await replica.start("ask which one?")
        await run.finished()
        record = await run.now()
        await _forget_input(run, record.request)
        [ticket] = await run.tickets()
        await run.decide(ticket.name, "respond", result="the red one")
        await run.finished(2)
        assert (await run.now()).input == record.input
