"""The machine finds faults: each that was put in on purpose, within the examples that it has."""

import asyncio
from collections.abc import Callable

import pytest

from tests.machine.examples import play
from tests.machine.machine import SPEC, ThreadMachine, tools
from tests.machine.mutants import AppliesTwice, forgets_open_calls, runs_unmarked
from tests.support.memory_house import MemoryHouse
from tests.support.playing import Fault, Player


@pytest.mark.parametrize(
    "mutant, objection",
    [
        (lambda: runs_unmarked, "a call runs that no commit has marked"),
        (
            AppliesTwice,
            "an answer is applied twice|a call (gets another answer|runs that nobody has allowed)",
        ),
        (lambda: forgets_open_calls, "done, with calls that have no result"),
    ],
    ids=["a round that doesn't mark", "an answer applied twice", "an end with open calls"],
)
@pytest.mark.timeout(300)
def test_the_machine_kills(mutant: Callable[[], Fault], objection: str) -> None:
    with asyncio.Runner() as runner:

        class Faulty(ThreadMachine):
            def __init__(self) -> None:
                player = Player(MemoryHouse(SPEC), SPEC, tools(), fault=mutant())
                super().__init__(runner, [player])

        with pytest.raises(AssertionError, match=objection):
            play(Faulty)
