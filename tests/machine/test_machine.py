"""Random scripts over the loop: every promise holds whatever dies, whoever answers and however often."""

import asyncio
import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.machine import SPEC, ThreadMachine, tools
from tests.support.memory_house import MemoryHouse
from tests.support.playing import Player

EXAMPLES = int(os.environ.get("HOLDFAST_MACHINE_EXAMPLES", "300"))


def budget(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=12,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )


def test_every_promise_holds_in_random_scripts() -> None:
    with asyncio.Runner() as runner:

        class InMemory(ThreadMachine):
            def __init__(self) -> None:
                super().__init__(runner, [Player(MemoryHouse(SPEC), SPEC, tools())])

        run_state_machine_as_test(InMemory, settings=budget(EXAMPLES))
