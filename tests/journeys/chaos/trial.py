"""One trial: everything is started, people live while the nemesis plays its plan, and what came of it is read."""

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from app.clock import sleep
from tests.journeys.chaos.aftermath import settle
from tests.journeys.chaos.asking import Client, World
from tests.journeys.chaos.checker import check
from tests.journeys.chaos.clients import Habits, Person
from tests.journeys.chaos.fleet import fleet
from tests.journeys.chaos.history import History
from tests.journeys.chaos.nemesis import Nemesis
from tests.journeys.chaos.plan import Planned
from tests.journeys.chaos.postgres import Postgres
from tests.journeys.chaos.readers import Witness
from tests.journeys.chaos.rumours import Rumour
from tests.journeys.chaos.truth import Truth, read_truth
from tests.journeys.chaos.violations import Violation
from tests.journeys.chaos.watch import watch
from tests.support.commands import HOLDFAST
from tests.support.providers import FakeProvider

_PATIENCE_OF_CLIENTS = httpx2.Timeout(5.0)
_STREAMS_END_WITHIN = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a trial is like, apart from its faults."""

    seed: int
    seconds: float
    replicas: int = 3
    people: int = 6
    habits: Habits = field(default_factory=Habits)
    program: Sequence[str | Path] = (HOLDFAST,)


@dataclass(frozen=True, slots=True)
class Outcome:
    history: History
    truth: Truth
    violations: Sequence[Violation]
    logs: str

    def keep(self, folder: Path) -> None:
        """Leave all that is known of it in files."""
        self.history.write(folder / "history.jsonl")
        (folder / "log.jsonl").write_text("\n".join(map(json.dumps, self.truth.events)))
        (folder / "violations.txt").write_text("\n".join(map(str, self.violations)))
        (folder / "replicas.log").write_text(self.logs)


async def hold(
    setting: Setting,
    planned: Sequence[Planned],
    postgres: Postgres | str,
    provider: FakeProvider,
    folder: Path,
) -> Outcome:
    """Live through the plan, come to rest, and be judged."""
    url = postgres if isinstance(postgres, str) else postgres.url
    history = History()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx2.AsyncClient(timeout=_PATIENCE_OF_CLIENTS, limits=_NO_LIMITS)
        )
        witness = await stack.enter_async_context(Witness(url))
        replicas = await stack.enter_async_context(
            fleet(url, _agents(folder, provider), setting.replicas, setting.program)
        )
        began = asyncio.get_running_loop().time()

        def now() -> float:
            return asyncio.get_running_loop().time() - began

        async with _listening(history) as listening:
            watching = listening.create_task(watch(url, history, now))
            rumour = Rumour()
            world = World(replicas, http, history, witness, rumour, listening, now)
            nemesis = Nemesis(replicas, postgres, provider, history, rumour, now)
            await _live(setting, world, nemesis, planned)
            await settle(url, replicas, http, history)
            world.over.set()
            watching.cancel()
        truth = await read_truth(url)
    logs = "\n".join(replica.log for replica in replicas)
    return Outcome(history, truth, check(history, truth), logs)


_NO_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=50)


async def _live(
    setting: Setting, world: World, nemesis: Nemesis, planned: Sequence[Planned]
) -> None:
    """People come before the first fault and go after the last."""
    over = asyncio.Event()
    async with asyncio.TaskGroup() as living:
        for number in range(setting.people):
            chance = random.Random(f"{setting.seed} {number}")
            client = Client(world, chance)
            person = Person(f"p{number}", client, setting.habits, chance)
            living.create_task(person.live(over))
        await nemesis.play(planned)
        await sleep(max(0.0, setting.seconds - world.now()))
        over.set()


@asynccontextmanager
async def _listening(history: History) -> AsyncIterator[asyncio.TaskGroup]:
    """Where readers live; once everything is over they are given a while to hear it."""
    try:
        async with asyncio.timeout(None) as patience, asyncio.TaskGroup() as listening:
            yield listening
            patience.reschedule(asyncio.get_running_loop().time() + _STREAMS_END_WITHIN)
    except TimeoutError:
        return  # the checker says which of them have never heard the end


def _agents(folder: Path, provider: FakeProvider) -> Path:
    """The agents file, beside its tools, with the provider's port in it."""
    shutil.copytree(Path(__file__).parent / "agents", folder / "agents", dirs_exist_ok=True)
    file = folder / "agents" / "agents.toml"
    file.write_text(file.read_text().replace("PORT", str(provider.port)))
    return file
