"""Random scripts over the loop: every promise holds whatever dies, whoever answers and however often."""

import asyncio

import pytest

from tests.machine.examples import play
from tests.machine.machine import SPEC, ThreadMachine, tools
from tests.support.memory_house import MemoryHouse
from tests.support.playing import Player


@pytest.mark.timeout(600)
def test_every_promise_holds_in_random_scripts() -> None:
    with asyncio.Runner() as runner:

        class InMemory(ThreadMachine):
            def __init__(self) -> None:
                super().__init__(runner, [Player(MemoryHouse(SPEC), SPEC, tools())])

        play(InMemory)
