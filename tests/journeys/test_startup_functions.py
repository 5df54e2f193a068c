"""Functions with `@startup`: their resources are open while a process executes runs."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.conditions import eventually
from tests.support.servers import Running, serving, working
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

AGENTS = """
[models.script]
provider = "scripted"
script = "plain"

[tools]
modules = ["shop"]

[agents.clerk]
model = "script"
tools = ["price", "price_in_thread"]
plugins = { prices = {} }

[agents.patient]
model = "script"
tools = ["price"]
background = ["price"]
"""

SHOP = """
import asyncio, os
from pathlib import Path

from holdfast import Deps, ToolContext, startup, tool
from holdfast.plugins import Phase, Plugin, PluginConfig, PluginKind

LOG = Path(__file__).with_name("log")


def write(what):
    with LOG.open("a") as log:
        log.write(f"{what} {os.getpid()}\\n")


@startup
async def open_prices(deps: Deps):
    write("prices-open")
    deps.prices = {"lamp": 40}
    yield
    write("prices-closed")


@startup
async def open_bank(deps: Deps):
    write(f"bank-open-after-{'lamp' in deps.prices}")
    deps.bank = "bank"
    yield
    write("bank-closed")


@tool(effect="read")
async def price(item: str, ctx: ToolContext, hold: bool = False) -> int:
    write("tool-begins")
    if hold:
        try:
            await asyncio.sleep(60)
        finally:
            write("tool-ends")
    return ctx.deps.prices[item]


@tool(effect="read")
def price_in_thread(item: str, ctx: ToolContext) -> str:
    return f"{ctx.deps.prices[item]} by {ctx.deps.bank}"


def build(agent, config):
    async def look(view):
        write(f"hook-{view.deps.prices['lamp']}")
        return []

    return Plugin(name="prices", hooks={Phase.RUN_START: look})


prices = PluginKind(name="prices", config=PluginConfig, build=build)
"""

FAILING = """
from holdfast import startup, tool


@tool
async def nothing() -> None: ...


@startup
async def connect(deps):
    yield


@startup
async def open_bank(deps):
    raise ConnectionError("the bank is closed")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.toml").write_text(AGENTS)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def written(folder: Path, process: Running) -> Sequence[str]:
    """What the folder's code wrote in this process."""
    log = folder / "log"
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [what for what, pid in lines if int(pid) == process.pid]


async def result_of(client: Client, agent: str, prompt: str) -> str:
    run = await client.ended((await client.start(agent, prompt))["id"])
    assert run["outcome"] == "succeeded"
    return str((await client.get(f"/v1/threads/{run['thread_id']}/messages"))["items"])


async def test_tools_and_hooks_use_what_the_process_opened_once(
    database_url: str, folder: Path
) -> None:
    async with serving(database_url, agents=folder / "agents.toml") as server:
        async with server.client() as client:
            assert "'40'" in await result_of(client, "clerk", 'CALL price {"item": "lamp"}')
            text = await result_of(client, "clerk", 'CALL price_in_thread {"item": "lamp"}')
            assert "40 by bank" in text
            started = await client.start("patient", 'CALL price {"item": "lamp"}')

            async def task_result() -> object:
                tasks = (await client.get(f"/v1/runs/{started['id']}/tasks"))["items"]
                return tasks and tasks[0]["result"]

            assert await eventually(task_result) == 40
        server.terminate()
        await server.gone()
        lines = written(folder, server)
    assert lines[:2] == ["prices-open", "bank-open-after-True"]
    assert lines[-2:] == ["bank-closed", "prices-closed"]
    assert lines.count("hook-40") == 2
    assert len(lines) == 2 + 2 + 2 + 2, "each function is called once"


async def test_resources_are_closed_after_the_runs_have_stopped(
    database_url: str, folder: Path
) -> None:
    async with serving(database_url, agents=folder / "agents.toml") as server:
        async with server.client() as client:
            await client.start("clerk", 'CALL price {"item": "lamp", "hold": true}')

            async def begun() -> bool:
                return "tool-begins" in written(folder, server)

            await eventually(begun)
        server.terminate()
        await server.gone()
        assert written(folder, server)[-3:] == ["tool-ends", "bank-closed", "prices-closed"]


async def test_a_process_of_the_role_api_opens_nothing_and_its_worker_does(
    database_url: str, folder: Path
) -> None:
    agents = folder / "agents.toml"
    async with (
        serving(database_url, agents=agents, role="api") as api,
        working(database_url, agents=agents) as worker,
        api.client() as client,
    ):
        assert "'40'" in await result_of(client, "clerk", 'CALL price {"item": "lamp"}')
        assert written(folder, api) == []
        assert written(folder, worker)[0] == "prices-open"


@pytest.mark.parametrize("command", ["serve", "worker"])
async def test_a_function_that_fails_stops_the_process_and_names_its_line(
    database_url: str, folder: Path, command: str
) -> None:
    module = folder / "shop.py"
    module.write_text(FAILING)
    agents = folder / "agents.toml"
    agents.write_text(AGENTS.partition("[agents")[0] + '[agents.clerk]\nmodel = "script"\n')
    program = serving if command == "serve" else working
    with pytest.raises(AssertionError) as failed:
        async with program(database_url, agents=agents):
            pass
    printed = str(failed.value).partition("\nassert ")[0]
    [sentence] = [line for line in printed.splitlines() if "open_bank" in line]
    place = re.escape(str(module))
    assert re.search(
        rf"{place}:\d+: open_bank failed: ConnectionError: the bank is closed"
        rf" \(line 16 of shop\.py\); correct it, or what it needs, and start again",
        sentence,
    ), sentence
    assert "Traceback" not in printed


async def test_a_function_that_takes_longer_than_the_setting_stops_the_process(
    database_url: str, folder: Path
) -> None:
    module = folder / "shop.py"
    hanging = FAILING.replace(
        'raise ConnectionError("the bank is closed")', "await asyncio.sleep(600)"
    )
    module.write_text(f"import asyncio\n{hanging}")
    agents = folder / "agents.toml"
    agents.write_text(AGENTS.partition("[agents")[0] + '[agents.clerk]\nmodel = "script"\n')
    with pytest.raises(AssertionError) as failed:
        async with serving(
            database_url,
            agents=agents,
            startup_function_timeout=0.1,
        ):
            pass
    assert (
        "open_bank failed: it took longer than 0.1 seconds (HOLDFAST_STARTUP_FUNCTION_TIMEOUT)"
        " (line 17 of shop.py); correct it"
    ) in str(failed.value)
