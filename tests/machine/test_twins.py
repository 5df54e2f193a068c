"""The rows in memory and those in Postgres are the same for the same scripts, and both are sound."""

import asyncio

import pytest

from tests.machine.examples import EXAMPLES_IN_POSTGRES, play
from tests.machine.machine import SPEC, ThreadMachine, tools
from tests.support.databases import Databases
from tests.support.invariants import broken_invariants
from tests.support.memory_house import MemoryHouse
from tests.support.playing import Player
from tests.support.real_house import Office, RealHouse


@pytest.mark.timeout(300)
def test_both_keep_the_same(postgres: Databases) -> None:
    with asyncio.Runner() as runner:
        fresh = postgres.fresh()
        url = runner.run(fresh.__aenter__())
        office = runner.run(Office.open(url))

        class Both(ThreadMachine):
            def __init__(self) -> None:
                real = RealHouse(office, SPEC, tools())
                twin = MemoryHouse(SPEC)
                super().__init__(runner, [Player(house, SPEC, tools()) for house in (twin, real)])

        try:
            play(Both, EXAMPLES_IN_POSTGRES)
            assert runner.run(broken_invariants(url)) == {}
        finally:
            runner.run(office.close())
            runner.run(fresh.__aexit__(None, None, None))
