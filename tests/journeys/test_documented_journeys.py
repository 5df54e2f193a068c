"""The diagrams of the architecture page name files that each journey really passes.

The service runs in this process, and a profiler records the files of `app/` whose functions are called.
"""

import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from app.settings import Settings
from tests.support.conditions import Effects, eventually
from tests.support.databases import Databases
from tests.support.documents import ROOT, page
from tests.support.loop_time import served_here
from tests.support.servers import serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

_SECTIONS = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.M | re.S)
_DIAGRAM = re.compile(r"```mermaid\n(.*?)```", re.S)
_ROOT, _APP = f"{ROOT}/", f"{ROOT}/app/"
_FILE = re.compile(r"\bapp/[\w/]+\.py\b")


def files_in_diagram(journey: str) -> set[str]:
    sections = dict(_SECTIONS.findall(page("docs/explanation/architecture.md")))
    return set(_FILE.findall("".join(_DIAGRAM.findall(sections[journey]))))


@contextmanager
def passed_files() -> Iterator[set[str]]:
    """The files of `app/` whose functions were called in this block so far, in this thread."""
    passed: set[str] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(_APP):
            passed.add(file.removeprefix(_ROOT))

    sys.setprofile(record)
    try:
        yield passed
    finally:
        sys.setprofile(None)


@pytest.fixture(scope="module")
async def database_url(postgres: Databases) -> AsyncIterator[str]:
    async with postgres.fresh() as url:
        yield url


@pytest.fixture(scope="module")
async def client(database_url: str, agents: Path) -> AsyncIterator[Client]:
    settings = Settings(
        database_url=database_url,
        agents=agents,
        log_level="error",
        heartbeat_interval=0.2,
        heartbeat_timeout=2.0,
        sweep_interval=0.2,
    )
    async with served_here(settings) as port, Client(f"http://127.0.0.1:{port}") as ours:
        yield ours


async def test_start_and_stream(client: Client) -> None:
    with passed_files() as passed:
        async with client.start_stream("quick", "hello") as stream:
            await stream.rest()
    assert files_in_diagram("Start and stream") <= passed


async def test_suspend_decide_and_resume(client: Client) -> None:
    with passed_files() as passed:
        started = await client.start("quick", 'CALL risky {"what": "it"}')
        waiting = await client.settled(started["id"])
        await client.decide(waiting, "approve")
        ended = await client.ended(started["id"])
    assert ended["outcome"] == "succeeded"
    assert files_in_diagram("Suspend, decide, resume") <= passed


async def test_cancel(client: Client, effects: Effects) -> None:
    with passed_files() as passed:
        waiting = await client.start("quick", 'CALL risky {"what": "it"}')
        await client.settled(waiting["id"])
        executing = await client.start("quick", effects.held("look"))
        await effects.happened()
        for run in (waiting, executing):
            await client.post(f"/v1/runs/{run['id']}/cancel?wait=20", {})
            assert (await client.ended(run["id"]))["outcome"] == "cancelled"

        async def has_beaten() -> bool:
            return "app/workers/heartbeat.py" in passed

        await eventually(has_beaten)
    assert files_in_diagram("Cancel") <= passed


async def test_takeover(client: Client, database_url: str, agents: Path, effects: Effects) -> None:
    async with serving(database_url, agents=agents) as other, other.client() as there:
        run = await there.start("quick", effects.held("look"))
        await effects.happened()
        with passed_files() as passed:
            other.kill()
            await effects.happened(2)
            effects.release()
            ended = await client.ended(run["id"])
    assert ended["outcome"] == "succeeded"
    assert files_in_diagram("Takeover") <= passed
