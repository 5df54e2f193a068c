"""One trial: starts everything, runs users and the nemesis, and checks the result."""

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
from tests.journeys.chaos.checker import check
from tests.journeys.chaos.clients import Habits, Person
from tests.journeys.chaos.decision_notifier import DecisionNotifier
from tests.journeys.chaos.fleet import fleet
from tests.journeys.chaos.history import History
from tests.journeys.chaos.nemesis import Nemesis
from tests.journeys.chaos.plan import Planned
from tests.journeys.chaos.postgres import Postgres
from tests.journeys.chaos.readers import Witness
from tests.journeys.chaos.requests import Client, TrialContext
from tests.journeys.chaos.truth import Truth, read_truth
from tests.journeys.chaos.violations import Violation
from tests.journeys.chaos.watch import watch
from tests.support.commands import HOLDFAST
from tests.support.providers import FakeProvider

_CLIENT_TIMEOUT = httpx2.Timeout(5.0)
_STREAM_END_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The settings of a trial, apart from its faults."""

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
        """Write the history, events, violations and logs to files."""
        self.history.write(folder / "history.jsonl")
        (folder / "log.jsonl").write_text("\n".join(map(json.dumps, self.truth.events)))
        (folder / "violations.txt").write_text("\n".join(map(str, self.violations)))
        (folder / "replicas.log").write_text(self.logs)


async def run_trial(
    setting: Setting,
    planned: Sequence[Planned],
    postgres: Postgres | str,
    provider: FakeProvider,
    folder: Path,
) -> Outcome:
    """Run users and faults, wait until every run is done, and check the result."""
    url = postgres if isinstance(postgres, str) else postgres.url
    history = History()
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx2.AsyncClient(timeout=_CLIENT_TIMEOUT, limits=_NO_LIMITS)
        )
        witness = await stack.enter_async_context(Witness(url))
        replicas = await stack.enter_async_context(
            fleet(url, _agents(folder, provider), setting.replicas, setting.program)
        )
        began = asyncio.get_running_loop().time()

        def now() -> float:
            return asyncio.get_running_loop().time() - began

        async with _reader_tasks(history) as listening:
            watching = listening.create_task(watch(url, history, now))
            decision_notifier = DecisionNotifier()
            context = TrialContext(
                replicas, http, history, witness, decision_notifier, listening, now
            )
            nemesis = Nemesis(replicas, postgres, provider, history, decision_notifier, now)
            await _run_users(setting, context, nemesis, planned)
            await settle(url, replicas, http, history)
            context.over.set()
            watching.cancel()
        truth = await read_truth(url)
    logs = "\n".join(replica.log for replica in replicas)
    return Outcome(history, truth, check(history, truth), logs)


_NO_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=50)


async def _run_users(
    setting: Setting, context: TrialContext, nemesis: Nemesis, planned: Sequence[Planned]
) -> None:
    """Users start before the first fault and stop after the last."""
    over = asyncio.Event()
    async with asyncio.TaskGroup() as users:
        for number in range(setting.people):
            chance = random.Random(f"{setting.seed} {number}")
            client = Client(context, chance)
            person = Person(f"p{number}", client, setting.habits, chance)
            users.create_task(person.act_until(over))
        await nemesis.play(planned)
        await sleep(max(0.0, setting.seconds - context.now()))
        over.set()


@asynccontextmanager
async def _reader_tasks(history: History) -> AsyncIterator[asyncio.TaskGroup]:
    """The task group of readers; at its end they get some time to read to the end."""
    try:
        async with asyncio.timeout(None) as deadline, asyncio.TaskGroup() as listening:
            yield listening
            deadline.reschedule(asyncio.get_running_loop().time() + _STREAM_END_TIMEOUT_SECONDS)
    except TimeoutError:
        return  # the checker reports the readers that didn't reach the end


def _agents(folder: Path, provider: FakeProvider) -> Path:
    """The agents file, beside its tools, with the provider's port in it."""
    shutil.copytree(Path(__file__).parent / "agents", folder / "agents", dirs_exist_ok=True)
    file = folder / "agents" / "agents.toml"
    file.write_text(file.read_text().replace("PORT", str(provider.port)))
    return file
