"""`holdfast init` writes a folder that works without a key; `holdfast dev` reloads it."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.commands import OURS, holdfast
from tests.support.databases import Databases
from tests.support.streams import Client
from tests.support.terminals import Command, started

pytestmark = pytest.mark.anyio

SERVES = re.compile(r"serves on (http://\S+)")
WRITTEN = {
    "agents.toml",
    "tools.py",
    "agents_test.py",
    "requirements.txt",
    ".gitignore",
    "README.md",
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder as `init` writes it."""
    folder = tmp_path_factory.mktemp("written") / "shop"
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "init", folder], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {Path(line) for line in done.stdout.splitlines()} == {folder / one for one in WRITTEN}
    assert done.stderr == f"Serve the agents with: holdfast dev {folder}\n"
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "shop"))


def test_all_files_are_written(template: Path) -> None:
    assert {path.name for path in template.iterdir()} == WRITTEN
    assert len((template / "README.md").read_text().splitlines()) == 10


def test_the_test_in_the_folder_passes(folder: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


async def test_nothing_is_overwritten(folder: Path) -> None:
    (folder / "agents.toml").write_text("mine")
    (folder / "tools.py").unlink()
    refused = await holdfast("init", str(folder))
    assert (refused.code, refused.out) == (1, "")
    assert "has agents.toml, agents_test.py, requirements.txt" in refused.err
    assert "nothing was written" in refused.err
    assert (folder / "agents.toml").read_text() == "mine"
    assert not (folder / "tools.py").exists()


async def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = await holdfast("init", str(tmp_path / "file" / "below"))
    assert refused.code == 1
    assert f"{tmp_path / 'file' / 'below'} can't be written" in refused.err


async def test_dev_needs_an_agents_file(tmp_path: Path) -> None:
    refused = await holdfast("dev", str(tmp_path))
    assert (refused.code, refused.out) == (1, "")
    assert f"There is no {tmp_path / 'agents.toml'}. `holdfast init` makes one." in refused.err


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


async def reloaded(dev: Command, name: str) -> None:
    await dev.printed(re.compile(rf"Reloaded after a change of {re.escape(name)}\."))
    dev.log = ""


async def test_dev_reloads_and_an_executing_run_continues(
    postgres: Databases, folder: Path
) -> None:
    edit(folder / "agents.toml", 'script = "plain"', 'script = "plain"\ndelay_ms = 100')
    async with postgres.fresh() as url:
        settings = {"DATABASE_URL": url, "HOLDFAST_MIGRATE": "1", "HOLDFAST_HANDOVER_GRACE": "0.2"}
        async with started("dev", str(folder), "--port", "0", **settings) as dev:
            base = (await dev.printed(SERVES))[1]
            async with Client(base) as client:
                run = await client.start("support", "word " * 60)
                async with client.events(f"/v1/runs/{run['id']}") as events:
                    await events.until("text_delta")
                edit(folder / "tools.py", "asking the bank …", "asking another bank …")
                await reloaded(dev, "tools.py")
                done = await client.ended(run["id"])
                assert done["outcome"] == "succeeded"
                assert done["final_output"].count("word") == 60
                edit(folder / "agents.toml", "[agents.support]", "[agents.helpdesk]")
                await reloaded(dev, "agents.toml")
                [agent] = (await client.get("/v1/agents"))["items"]
                assert agent["id"] == "helpdesk"
            dev.terminate()
            assert await dev.gone() == 0
    assert "Traceback" not in dev.log


async def test_after_a_mistake_the_old_server_continues(postgres: Databases, folder: Path) -> None:
    async with postgres.fresh() as url:
        settings = {"DATABASE_URL": url, "HOLDFAST_MIGRATE": "1"}
        async with started("dev", str(folder), "--port", "0", **settings) as dev:
            base = (await dev.printed(SERVES))[1]
            async with Client(base) as client:
                edit(folder / "tools.py", "async def refund(", "async def refund((")
                await dev.printed(
                    re.compile(r"tools.py can't be loaded. The server continues without it")
                )
                assert "SyntaxError" in dev.log
                run = await client.start("support", 'CALL find_order {"number": "A-7"}')
                assert "lamp" in (await client.ended(run["id"]))["final_output"]
                edit(folder / "tools.py", "async def refund((", "async def refund(")
                await reloaded(dev, "tools.py")
                edit(folder / "tools.py", '"lamp"', '"chair"')
                await reloaded(dev, "tools.py")
                run = await client.start("support", 'CALL find_order {"number": "A-7"}')
                assert "chair" in (await client.ended(run["id"]))["final_output"]


async def test_the_server_of_dev_ends_with_it(postgres: Databases, folder: Path) -> None:
    """Also when `dev` is killed, so that no server keeps the port."""
    async with postgres.fresh() as url:
        settings = {"DATABASE_URL": url, "HOLDFAST_MIGRATE": "1"}
        async with started("dev", str(folder), "--port", "0", **settings) as dev:
            base = (await dev.printed(SERVES))[1]
            port = base.rpartition(":")[2]
            dev.kill()
            await dev.process.wait()
            until = time.monotonic() + 20
            while time.monotonic() < until:
                code = (await holdfast("agents", "--url", base)).code
                if code == 7:
                    break
            assert code == 7, port
