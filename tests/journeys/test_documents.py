"""The commands in the documents produce the documented output on a real server."""

from pathlib import Path

import asyncpg
import pytest

from tests.support.databases import Databases
from tests.support.documents import Document, block_after, document, execute, in_shell, page
from tests.support.ports import free_port
from tests.support.servers import serving

pytestmark = pytest.mark.anyio


async def follow_page(read: Document, postgres: Databases, folder: Path) -> None:
    """Make the page's files, serve them, and execute its commands in their order."""
    for name, text in read.files.items():
        (folder / name).write_text(text)
    settings = {"agents": folder / "agents.toml"} if "agents.toml" in read.files else {}
    async with postgres.fresh() as url, serving(url, **settings) as server:
        await follow_commands(read, server.base, folder)


async def follow_commands(read: Document, base: str, folder: Path, **variables: str) -> list[str]:
    """Execute the page's commands in their order, with these variables; checks and returns their output."""
    printed = await execute(read.commands, base, folder, **variables)
    for block, output in zip(read.commands, printed, strict=True):
        for text in block.shows:
            assert text in output, f"{block.script}\nprints\n{output}"
    return printed


async def test_the_commands_of_the_readme_work(postgres: Databases, tmp_path: Path) -> None:
    read = document("README.md")
    assert len(read.commands) == 3
    await follow_page(read, postgres, tmp_path)


async def test_an_answer_survives_the_kill_of_the_readme(
    postgres: Databases, tmp_path: Path
) -> None:
    script = block_after(page("README.md"), "kill").replace("8001", str(free_port()))
    settings = {"HOLDFAST_HEARTBEAT_INTERVAL": "0.2", "HOLDFAST_HEARTBEAT_TIMEOUT": "1"}
    async with postgres.fresh() as url:
        await in_shell(script, tmp_path, DATABASE_URL=url, **settings)
    answer = (tmp_path / "answer.txt").read_text()
    numbers = " ".join(map(str, range(1, 151)))
    assert f"You said: count: {numbers}\n" in answer
    assert (tmp_path / "server.log").read_text().count("Holdfast serves on") == 2


@pytest.mark.parametrize("name, count", [("start", 2), ("limits", 1), ("usage", 2), ("files", 2)])
async def test_the_commands_of_a_guide_work(
    name: str, count: int, postgres: Databases, tmp_path: Path
) -> None:
    read = document(f"docs/how-to/{name}.md")
    assert len(read.commands) == count
    await follow_page(read, postgres, tmp_path)


async def test_the_commands_of_the_tutorial_work(postgres: Databases, tmp_path: Path) -> None:
    read = document("docs/tutorial/support-agent.md")
    assert set(read.files) == {"agents.toml", "shop_tools.py"}
    assert len(read.commands) == 7
    await follow_page(read, postgres, tmp_path)


async def test_the_commands_that_wait_for_a_signal_work(
    postgres: Databases, tmp_path: Path
) -> None:
    read = document("docs/how-to/signals.md")
    assert set(read.files) == {"agents.toml", "shipping_tools.py"}
    assert len(read.commands) == 3
    await follow_page(read, postgres, tmp_path)


async def test_the_commands_that_resume_a_stream_work(postgres: Databases, tmp_path: Path) -> None:
    read = document("docs/how-to/resume-a-stream.md")
    assert len(read.commands) == 2
    async with postgres.fresh() as url, serving(url) as server, server.client() as client:
        waiting = await client.start("demo", "delete /tmp/notes.md")
        await client.settled(waiting["id"])
        [printed, _] = await follow_commands(read, server.base, tmp_path, RUN=waiting["id"])
        assert "id: 4\n" not in printed


async def test_the_commands_that_debug_a_stuck_run_work(
    postgres: Databases, tmp_path: Path
) -> None:
    name = "docs/how-to/debug-a-stuck-run.md"
    read = document(name)
    assert len(read.commands) == 2
    async with postgres.fresh() as url:
        async with serving(url) as server, server.client() as client:
            waiting = await client.start("demo", "delete /tmp/notes.md")
            await client.settled(waiting["id"])
            await follow_commands(read, server.base, tmp_path, RUN=waiting["id"])
        async with serving(url, role="api") as server, server.client() as client:
            without_worker = await client.start("demo", "Hello.")
            connection = await asyncpg.connect(url)
            try:
                found = await connection.fetch(
                    block_after(page(name), "runs without a live worker")
                )
                assert [str(row["id"]) for row in found] == [without_worker["id"]]
                [queued] = await connection.fetch(block_after(page(name), "queued deliveries"))
                assert (queued["entrypoint"], queued["count"]) == ("run", 1)
            finally:
                await connection.close()


async def test_a_waiting_run_survives_a_back_up_and_a_restore(
    postgres: Databases, tmp_path: Path
) -> None:
    guide = page("docs/how-to/back-up.md")
    async with postgres.fresh() as url:
        async with serving(url) as server, server.client() as client:
            started = await client.start("demo", "delete /tmp/notes.md")
            await client.settled(started["id"])
            await in_shell(block_after(guide, "back up"), tmp_path, DATABASE_URL=url)
    async with postgres.fresh("template1") as url:
        await in_shell(block_after(guide, "restore"), tmp_path, DATABASE_URL=url)
        async with serving(url) as server, server.client() as client:
            waiting = await client.run(started["id"])
            await client.decide(waiting, "approve")
            done = await client.ended(started["id"])
            assert done["outcome"] == "succeeded"
            assert await client.log(f"/v1/runs/{started['id']}")
