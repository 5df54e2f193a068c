"""The same scripts give the same rows in memory and in Postgres."""

import asyncio

import pytest

from tests.machine.examples import EXAMPLES_IN_POSTGRES, play
from tests.machine.machine import SPEC, ThreadMachine, tools
from tests.support.databases import Databases
from tests.support.invariants import broken_invariants
from tests.support.memory_system import MemorySystem
from tests.support.real_system import DatabaseServices, RealSystem
from tests.support.thread_driver import ThreadDriver


@pytest.mark.timeout(300)
def test_memory_and_postgres_store_the_same_rows(postgres: Databases) -> None:
    with asyncio.Runner() as runner:
        fresh = postgres.fresh()
        url = runner.run(fresh.__aenter__())
        services = runner.run(DatabaseServices.open(url))

        class Both(ThreadMachine):
            def __init__(self) -> None:
                real = RealSystem(services, SPEC, tools())
                in_memory = MemorySystem(SPEC)
                super().__init__(
                    runner, [ThreadDriver(system, SPEC, tools()) for system in (in_memory, real)]
                )

        try:
            play(Both, EXAMPLES_IN_POSTGRES)
            assert runner.run(broken_invariants(url)) == {}
        finally:
            runner.run(services.close())
            runner.run(fresh.__aexit__(None, None, None))
