"""The rows in memory and those in Postgres are the same for the same scripts."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.machine import SPEC, ThreadMachine, tools
from tests.machine.test_machine import budget
from tests.support.databases import Databases
from tests.support.invariants import broken_invariants
from tests.support.memory_house import MemoryHouse
from tests.support.playing import Player
from tests.support.real_house import Office, RealHouse, office
from tests.support.thread_rows import comparable

EXAMPLES = 30
