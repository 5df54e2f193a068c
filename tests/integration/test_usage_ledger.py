"""The usage ledger: one row for each billed request, in the commit of its step, and limits of cost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.clock import SystemClock
from app.domain.errors import Invalid
from app.domain.ids import Tenant
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import InferenceOptions
from app.domain.runs.limits import OnLimit, used_by
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Stopped
from app.domain.structs import replace
from app.domain.usage.billed_requests import BilledRequest, BilledTokens, Cost, UsageKind
from app.domain.usage.totals import UsageFilter, UsageGroup
from app.llm.scripted.model import Fail, Gate, ScriptedModel, in_order, turn
from app.queries.records import read_run
from app.queries.usage import thread_usage, usage_by_group, with_usage
from app.runtime.ports.models import StopReason, TokenUsage
from app.runtime.ports.prices import Prices
from app.storage.postgres.database import Database
from app.storage.usage import ledger, totals
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    PROMPT_RETRIES,
    TIMEOUT_SECONDS,
    OneModel,
    Replica,
    Run,
    an_agent,
    open_replica,
)
from tests.support.stored_runs import TENANT, admit, some_run, worker

pytestmark = pytest.mark.anyio

_INSERT = """
INSERT INTO usage (tenant, thread_id, run_id, attempt, step_index, number, root_run_id, agent_id, subject, model, provider,
    kind, input, output, cache_read, cache_write, reasoning)
VALUES ($1, $2, $3, 1, 0, 1, $4, 'clerk', 'ann', 'm', 'house', 'inference', 1, 1, 0, 0, 0)
"""
TOKENS = TokenUsage(prompt_tokens=100, completion_tokens=10, total_tokens=110, cache_read_tokens=40)


class PricePerToken:
    """Each input token costs one millionth of a dollar, and each output token ten."""

    provider = "house"

    def __init__(self, unpriced: tuple[str, ...] = ()) -> None:
        self._unpriced = unpriced

    async def load(self) -> None:
        return

    def cost(self, model: str, tokens: BilledTokens, at: datetime) -> Cost | None:
        if model in self._unpriced:
            return None
        return Cost(tokens.input + 10 * tokens.output, "a test")


class PricedModel(OneModel):
    def __init__(self, model: ScriptedModel, prices: Prices) -> None:
        super().__init__(model)
        self._prices_of_it = prices

    def prices(self, name: str) -> Prices:
        return self._prices_of_it


def billed(*parts: Any, tokens: TokenUsage = TOKENS) -> Any:
    return replace(turn(*parts), usage=tokens)


@asynccontextmanager
async def priced_replica(
    database_url: str, catalog: Any, script: Any, *unpriced: str
) -> AsyncIterator[Replica]:
    models = PricedModel(ScriptedModel("scripted", script), PricePerToken(unpriced))
    async with open_replica(database_url, catalog, models) as replica:
        yield replica


async def rows_of(replica: Replica, run: Run) -> list[dict[str, Any]]:
    rows = await replica.ctx.database.pool.fetch(
        "SELECT * FROM usage WHERE tenant = $1 AND run_id = $2 ORDER BY attempt, number",
        ANN.tenant,
        run.id,
    )
    return [dict(row) for row in rows]


async def test_each_request_has_a_row_that_says_what_was_billed(database_url: str) -> None:
    probe = Probe()
    script = in_order(billed(probe.call("c1", "a")), billed("done"))
    async with priced_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start()
        await run.finished()
        first, second = await rows_of(replica, run)
        assert {
            name: first[name]
            for name in first
            if name not in ("at", "run_id", "root_run_id", "thread_id")
        } == {
            "tenant": ANN.tenant,
            "attempt": 1,
            "step_index": 0,
            "number": 1,
            "agent_id": "tester",
            "subject": "ann",
            "model": "scripted",
            "provider": "house",
            "kind": "inference",
            "input": 100,
            "output": 10,
            "cache_read": 40,
            "cache_write": 0,
            "reasoning": 0,
            "cost_micros": 200,
            "priced_by": "a test",
        }
        assert str(first["root_run_id"]) == run.id
        assert (second["step_index"], second["number"]) == (1, 2)
        record = await run.now()
        assert used_by(record).cost_usd == 0.0004
        [view] = await with_usage(replica.ctx, ANN, [await read_run(replica.ctx, ANN, record.id)])
        assert view.usage is not None
        [total] = view.usage
        assert (total.requests, total.input_tokens, total.cost_usd) == (2, 200, 0.0004)
        assert await thread_usage(replica.ctx, ANN, record.thread_id) == view.usage


async def test_attempts_that_failed_after_they_were_billed_count_with_their_own_model(
    database_url: str,
) -> None:
    overloaded = failed(FailureKind.OVERLOADED, "busy")
    script = in_order(
        turn(Fail(overloaded)),
        billed("one ", "two", tokens=TokenUsage(prompt_tokens=7)),
    )
    agent = an_agent(
        retry=replace(PROMPT_RETRIES, max_retries=0, fallback_upstream_models=("backup",))
    )
    async with priced_replica(database_url, agent, script, "backup") as replica:
        run = await replica.start()
        await run.finished()
        [row] = await rows_of(replica, run)
        assert (row["model"], row["input"]) == ("backup", 7)
        assert (row["cost_micros"], row["priced_by"]) == (None, None)
        read = await read_run(replica.ctx, ANN, (await run.now()).id)
        [view] = await with_usage(replica.ctx, ANN, [read])
        assert view.usage is not None
        assert [(one.cost_usd, one.unpriced_requests) for one in view.usage] == [(None, 1)]


async def test_an_answer_that_is_continued_is_billed_for_each_request(database_url: str) -> None:
    cut = replace(billed("first half, "), stop_reason=StopReason.MAX_TOKENS)
    script = in_order(cut, billed("second half"))
    async with priced_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await run.finished()
        rows = await rows_of(replica, run)
        assert [(row["step_index"], row["number"]) for row in rows] == [(0, 1), (0, 2)]


async def test_a_takeover_doubles_no_row(database_url: str) -> None:
    gate, probe = Gate(), Probe()
    script = in_order(billed(probe.call("c1", "a")), billed("lost ", gate, "words"))
    catalog = an_agent(probe.tool)
    async with priced_replica(database_url, catalog, script) as first:
        run = await first.start()
        await asyncio.wait_for(gate.reached.wait(), TIMEOUT_SECONDS)
        await first.kill()
    async with priced_replica(database_url, catalog, in_order(billed("done"))) as second:
        run = second.same(run)
        await run.finished()
        rows = await rows_of(second, run)
        assert [(row["attempt"], row["step_index"]) for row in rows] == [(1, 0), (2, 1)]
        assert used_by(await run.now()).cost_usd == 0.0004
    assert await broken_invariants(database_url) == {}


async def test_a_checkpoint_that_is_written_twice_has_one_row(
    database_url: str, database: Database
) -> None:
    async with priced_replica(database_url, an_agent(), in_order(billed("done"))) as replica:
        run = await replica.start()
        await run.finished()
        record = await run.now()
        request = BilledRequest(
            number=1,
            step_index=0,
            agent_id=record.agent_id,
            model="scripted",
            provider="house",
            kind=UsageKind.INFERENCE,
            tokens=BilledTokens(input=5),
        )
        async with database.transaction() as connection:
            await ledger.add(connection, record.tenant, record.id, record.attempt, [request])
        [row] = await rows_of(replica, run)
        assert row["input"] == 100


async def test_a_run_stops_at_its_cost(database_url: str) -> None:
    probe = Probe()
    script = in_order(*(billed(probe.call(f"c{n}", "a")) for n in range(4)), turn("done"))
    async with priced_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start(limits={"cost_usd": 0.0004})
        await run.finished()
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Stopped("limit_cost_usd", "$0.0004 of $0.0004 were used")
    assert len(probe.handed) == 2


async def test_a_person_raises_the_limit_of_the_cost(database_url: str) -> None:
    probe = Probe()
    script = in_order(*(billed(probe.call(f"c{n}", "a")) for n in range(2)), billed("done"))
    async with priced_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start(limits={"cost_usd": 0.0003}, on_limit=OnLimit.ASK)
        await run.finished()
        [ticket] = await run.tickets()
        assert ticket.arguments == {
            "limit": "cost_usd",
            "allowed": 0.0003,
            "used": 0.0004,
            "raise_by": 0.0003,
        }
        await run.decide(ticket.name, "approve")
        await run.ended()
        assert isinstance((await run.now()).state, Done)
        assert used_by(await run.now()).cost_usd == 0.0006


@pytest.mark.parametrize(
    "overrides, missing",
    [
        (InferenceOptions(), ["scripted"]),
        (InferenceOptions(upstream_model="known"), []),
        (InferenceOptions(upstream_model="known", fallback_upstream_models=("other",)), ["other"]),
    ],
)
async def test_a_limit_of_the_cost_needs_a_price_of_every_model(
    database_url: str, overrides: InferenceOptions, missing: list[str]
) -> None:
    async with priced_replica(
        database_url, an_agent(), in_order(billed("done")), "scripted", "other"
    ) as replica:
        if not missing:
            run = await replica.start(limits={"cost_usd": 1}, overrides=overrides)
            await run.finished()
            return
        with pytest.raises(Invalid) as refused:
            await replica.start(limits={"cost_usd": 1}, overrides=overrides)
        assert refused.value.code == "price_unknown"
        assert refused.value.facts["models"] == missing
        assert await replica.ctx.database.pool.fetchval("SELECT count(*) FROM runs") == 0
        assert await replica.ctx.database.pool.fetchval("SELECT count(*) FROM threads") == 0


async def test_the_sums_of_a_period_are_paged_by_group(database_url: str) -> None:
    probe = Probe()
    script = in_order(*(billed("done") for _ in range(3)))
    async with priced_replica(database_url, an_agent(probe.tool), script) as replica:
        runs = [await replica.start() for _ in range(3)]
        for run in runs:
            await run.finished()
        now = replica.ctx.clock.now()
        period = UsageFilter(begin=now - timedelta(hours=1), end=now + timedelta(hours=1))
        by_thread = [UsageGroup.MODEL, UsageGroup.THREAD]
        seen: list[str] = []
        after: tuple[str, ...] | None = None
        while True:
            page = await usage_by_group(replica.ctx, ANN, period, by_thread, after=after, limit=1)
            [total] = page
            assert total.requests == 1
            seen.append(total.group["thread"])
            if not page.has_more:
                break
            after = tuple(total.group.values())
        assert seen == sorted([(await run.now()).thread_id for run in runs])
        for_one = replace(period, thread_id=(await runs[0].now()).thread_id)
        [total] = await usage_by_group(
            replica.ctx, ANN, for_one, [UsageGroup.DAY, UsageGroup.SUBJECT], after=None, limit=5
        )
        assert total.group == {"day": f"{now:%Y-%m-%d}", "subject": "ann"}
        stranger = replace(ANN, tenant=Tenant("other"))
        assert not await usage_by_group(
            replica.ctx, stranger, period, by_thread, after=None, limit=5
        )


async def test_old_rows_are_deleted(database_url: str, database: Database) -> None:
    async with priced_replica(database_url, an_agent(), in_order(billed("x"))) as replica:
        run = await replica.start()
        await run.finished()
        await database.pool.execute("UPDATE usage SET at = at - interval '401 days'")
        async with database.transaction() as connection:
            assert await ledger.delete_old(connection, 400 * 86_400, 10) == 1
        assert await rows_of(replica, run) == []


async def test_the_usage_of_a_tree_counts_with_and_without_its_threads(database: Database) -> None:
    root, other = some_run(), some_run()
    children = [some_run() for _ in range(2)]
    for run in (root, other, *children):
        assert await admit(database.pool, run, await worker(database.pool)) is not None
    for run, of_tree in ((root, root), (other, other), *((child, root) for child in children)):
        await database.pool.execute(_INSERT, TENANT, run.thread_id, run.id, of_tree.id)
    now = SystemClock().now()
    period = UsageFilter(begin=now - timedelta(hours=1), end=now + timedelta(hours=1))
    for deleted in (None, children[0], root):
        if deleted is not None:
            await database.pool.execute("DELETE FROM threads WHERE id = $1", deleted.thread_id)
        for run, expected in ((root, 3), (other, 1), (children[0], 0), (some_run(), 0)):
            wanted = replace(period, root_run_id=run.id)
            async with database.reading() as connection:
                page = await totals.page(
                    connection, TENANT, wanted, [UsageGroup.MODEL], after=None, limit=5
                )
            assert sum(total.requests for total in page) == expected
