"""A short trial with every kind of fault: nothing is lost, whatever breaks. `make chaos` has long ones."""

from pathlib import Path

import pytest

from tests.journeys.chaos.checks_of_rate_limits import rate_limit_waits
from tests.journeys.chaos.clients import Habits
from tests.journeys.chaos.history import Kind
from tests.journeys.chaos.plan import Break, plan
from tests.journeys.chaos.postgres import Postgres
from tests.journeys.chaos.table import table
from tests.journeys.chaos.trial import Setting, hold
from tests.support.providers import FakeProvider

pytestmark = pytest.mark.anyio

SEED = 203
"""One by which a replica is frozen first, while both are up, and then one after the other goes."""
SECONDS = 9.0
PAUSES = (0.3, 0.75)
"""Short ones, so that every fault has its turn."""
HABITS = Habits(acts={**Habits().acts, "start_tree": 2})
"""With so many trees that some grow to their full depth."""


@pytest.mark.timeout(600)
async def test_nothing_is_lost_whatever_breaks(provider: FakeProvider, folder: Path) -> None:
    setting = Setting(seed=SEED, seconds=SECONDS, replicas=2, people=5, habits=HABITS)
    planned = plan(SEED, SECONDS, setting.replicas, pauses=PAUSES)
    assert {one.what for one in planned} == set(Break)
    async with Postgres(folder / "pg").running() as postgres:
        outcome = await hold(setting, planned, postgres, provider, folder)
    print(table(outcome, SEED))
    assert not outcome.violations, "\n".join(map(str, outcome.violations))
    assert Break.FREEZE.value in {fault.kind for fault in outcome.history.faults}
    assert outcome.truth.runs
    assert outcome.truth.effects
    assert rate_limit_waits(outcome.truth)
    assert any(hearing.connections > 1 for hearing in outcome.history.hearings)
    assert any(outcome.history.of(Kind.DECIDE))
    assert any(effect["tool"] == "receive" for effect in outcome.truth.effects)
    assert {0, 1, 2} <= {run["depth"] for run in outcome.truth.runs}
