"""Random scripts with random incidents: the invariants of the loop hold."""

import asyncio

import pytest

from tests.machine.examples import play
from tests.machine.machine import SPEC, ThreadMachine, tools
from tests.support.memory_system import MemorySystem
from tests.support.thread_driver import ThreadDriver


@pytest.mark.timeout(600)
def test_the_invariants_hold_in_random_scripts() -> None:
    with asyncio.Runner() as runner:

        class InMemory(ThreadMachine):
            def __init__(self) -> None:
                super().__init__(runner, [ThreadDriver(MemorySystem(SPEC), SPEC, tools())])

        play(InMemory)
