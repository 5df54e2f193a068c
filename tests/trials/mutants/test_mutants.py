"""The harness finds bugs: each that was put in on purpose, by a short trial that is aimed at it."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys.chaos.clients import Habits
from tests.journeys.chaos.mutated_serve import program
from tests.journeys.chaos.plan import Break, plan
from tests.journeys.chaos.postgres import add_effects
from tests.journeys.chaos.trial import Setting, hold
from tests.support.databases import Databases
from tests.support.providers import FakeProvider

pytestmark = pytest.mark.anyio

SEED = 5
TRIES = 3
"""Short trials until a bug must have been found: a busy machine leaves little room in each."""


def words(_: random.Random, __: str) -> str:
    return "Tell me something."


def payments(_: random.Random, mark: str) -> str:
    return f'CALLS 2 pay {{"what": "{mark}/1"}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a mutant is met with: which faults, which habits, and what is to be said of it."""

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
        found_by=frozenset({"events out of order", "what was said isn't what was written"}),
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
        found_by=frozenset({"a decision that was answered doesn't count"}),
    ),
}


@pytest.mark.parametrize("mutant", AIMS)
@pytest.mark.timeout(600)
async def test_a_planted_bug_is_found(
    mutant: str, postgres: Databases, provider: FakeProvider, folder: Path
) -> None:
    aim, violated = AIMS[mutant], set[str]()
    for seed in range(SEED, SEED + TRIES):
        async with postgres.fresh() as url:
            violated |= await _trial(mutant, aim, seed, url, provider, _made(folder, seed))
        if violated & aim.found_by:
            return
    raise AssertionError(f"not found in {TRIES} trials, which found {violated or 'nothing'}")


def _made(folder: Path, seed: int) -> Path:
    own = folder / str(seed)
    own.mkdir()
    return own


async def _trial(
    mutant: str, aim: Aim, seed: int, database_url: str, provider: FakeProvider, folder: Path
) -> set[str]:
    """What a short trial finds not to be as promised."""
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
    outcome = await hold(setting, planned, database_url, provider, folder)
    return {violation.rule for violation in outcome.violations}
