"""A short trial with every kind of fault. `make chaos` runs long ones."""

from pathlib import Path

import pytest

from tests.journeys.chaos.checks_of_rate_limits import rate_limit_waits
from tests.journeys.chaos.clients import Habits
from tests.journeys.chaos.history import Kind
from tests.journeys.chaos.plan import Break, plan
from tests.journeys.chaos.postgres import Postgres
from tests.journeys.chaos.table import table
from tests.journeys.chaos.trial import Setting, run_trial
from tests.support.providers import FakeProvider

pytestmark = pytest.mark.anyio

SEED = 203
"""A seed whose plan freezes a replica while both are up, and later takes both down in turn."""
SECONDS = 9.0
PAUSES = (0.3, 0.75)
"""Short pauses, so that every fault occurs."""
HABITS = Habits(acts={**Habits().acts, "start_tree": 2})
"""Enough trees that some reach their full depth."""


@pytest.mark.timeout(600)
async def test_nothing_is_lost_under_all_faults(provider: FakeProvider, folder: Path) -> None:
    setting = Setting(seed=SEED, seconds=SECONDS, replicas=2, people=5, habits=HABITS)
    planned = plan(SEED, SECONDS, setting.replicas, pauses=PAUSES)
    assert {one.what for one in planned} == set(Break)
    async with Postgres(folder / "pg").running() as postgres:
        outcome = await run_trial(setting, planned, postgres, provider, folder)
    print(table(outcome, SEED))
    assert not outcome.violations, "\n".join(map(str, outcome.violations))
    assert Break.FREEZE.value in {fault.kind for fault in outcome.history.faults}
    assert outcome.truth.runs
    assert outcome.truth.effects
    assert rate_limit_waits(outcome.truth)
    assert any(reader_record.connections > 1 for reader_record in outcome.history.reader_records)
    assert any(outcome.history.of(Kind.DECIDE))
    assert any(effect["tool"] == "receive" for effect in outcome.truth.effects)
    assert {0, 1, 2} <= {run["depth"] for run in outcome.truth.runs}
