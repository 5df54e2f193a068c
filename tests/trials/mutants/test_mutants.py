"""The chaos harness finds each planted bug in a short trial aimed at it."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys.chaos.clients import Habits
from tests.journeys.chaos.mutated_serve import program
from tests.journeys.chaos.plan import Break, plan
from tests.journeys.chaos.postgres import add_effects
from tests.journeys.chaos.trial import Setting, run_trial
from tests.support.databases import Databases
from tests.support.providers import FakeProvider

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SEED = 5
TRIES = 8
"""Short trials until a bug must be found. About half of the trials find `fence`: a worker that was frozen
often notices that it lost its run before it writes."""


def words(_: random.Random, __: str) -> str:
    return "Tell me something."


def payments(_: random.Random, mark: str) -> str:
    return f'CALLS 2 pay {{"what": "{mark}/1"}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The faults and habits for a mutant, and the violations that reveal it."""

    faults: Collection[Break]
    habits: Habits
    seconds: float = 4.0
    found_by: frozenset[str]


DECIDING = Habits(
    acts={"start": 2, "decide": 5}, agents=["worker"], prompt=payments, longest_pause=0.1
)
AIMS = {
    "fence": Aim(
        faults=[Break.FREEZE],
        habits=Habits(acts={"start": 1}, agents=["lecturer"], prompt=words),
        found_by=frozenset(
            {"events out of order", "the streamed text differs from the final output"}
        ),
    ),
    "publish": Aim(
        faults=[Break.BACKENDS],
        habits=DECIDING,
        found_by=frozenset(
            {
                "a frame is seen before it is durable",
                "a frame that was seen isn't in the log",
            }
        ),
    ),
    "acknowledge": Aim(
        faults=[Break.KILL_BEHIND_ANSWER],
        habits=DECIDING,
        found_by=frozenset({"an answered decision is not the winner"}),
    ),
}


@pytest.mark.parametrize("mutant", AIMS)
@pytest.mark.timeout(600)
async def test_a_mutant_is_found(
    mutant: str, postgres: Databases, provider: FakeProvider, folder: Path
) -> None:
    aim, violated = AIMS[mutant], set[str]()
    for seed in range(SEED, SEED + TRIES):
        async with postgres.fresh() as url:
            violated |= await _trial(mutant, aim, seed, url, provider, _subfolder(folder, seed))
        if violated & aim.found_by:
            return
    raise AssertionError(f"not found in {TRIES} trials, which found {violated or 'nothing'}")


def _subfolder(folder: Path, seed: int) -> Path:
    own = folder / str(seed)
    own.mkdir()
    return own


async def _trial(
    mutant: str, aim: Aim, seed: int, database_url: str, provider: FakeProvider, folder: Path
) -> set[str]:
    """The rules that a short trial finds violated."""
    await add_effects(database_url)
    setting = Setting(
        seed=seed,
        seconds=aim.seconds,
        replicas=2,
        people=3,
        habits=aim.habits,
        program=program(mutant),
    )
    planned = plan(seed, aim.seconds, setting.replicas, aim.faults, pauses=(0.8, 1.2))
    outcome = await run_trial(setting, planned, database_url, provider, folder)
    return {violation.rule for violation in outcome.violations}
