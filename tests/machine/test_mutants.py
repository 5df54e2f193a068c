"""The state machine finds each seeded fault within its number of examples."""

import asyncio
from collections.abc import Callable

import pytest

from tests.machine.examples import play
from tests.machine.machine import SPEC, ThreadMachine, tools
from tests.machine.mutants import AppliesTwice, forgets_open_calls, runs_unmarked
from tests.support.memory_system import MemorySystem
from tests.support.thread_driver import Fault, ThreadDriver


@pytest.mark.parametrize(
    "mutant, objection",
    [
        (lambda: runs_unmarked, "a call runs that no commit has marked"),
        (
            AppliesTwice,
            "a decision is applied twice|a call (gets another decision|runs (again|without approval))",
        ),
        (lambda: forgets_open_calls, "done, with calls that have no result"),
    ],
    ids=["calls run unmarked", "a decision is applied twice", "an end has open calls"],
)
@pytest.mark.timeout(300)
def test_the_machine_finds_the_seeded_fault(mutant: Callable[[], Fault], objection: str) -> None:
    with asyncio.Runner() as runner:

        class Faulty(ThreadMachine):
            def __init__(self) -> None:
                player = ThreadDriver(MemorySystem(SPEC), SPEC, tools(), fault=mutant())
                super().__init__(runner, [player])

        with pytest.raises(AssertionError, match=objection):
            play(Faulty)
