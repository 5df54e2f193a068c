"""The commands of the documents do what the documents say, against a real server."""

from pathlib import Path

import pytest

from tests.support.databases import Databases
from tests.support.documents import Document, block_after, document, execute, in_shell, page
from tests.support.servers import serving

pytestmark = pytest.mark.anyio


async def follow_page(read: Document, postgres: Databases, folder: Path) -> None:
    """Make the page's files, serve them, and execute its commands in their order."""
    for name, text in read.files.items():
        (folder / name).write_text(text)
    settings = {"agents": folder / "agents.toml"} if "agents.toml" in read.files else {}
    async with postgres.fresh() as url, serving(url, **settings) as server:
        printed = await execute(read.commands, server.base, folder)
    for block, output in zip(read.commands, printed, strict=True):
        for text in block.shows:
            assert text in output, f"{block.script}\nprints\n{output}"


async def test_the_readme_shows_what_happens_in_five_minutes(
    postgres: Databases, tmp_path: Path
) -> None:
    read = document("README.md")
    assert len(read.commands) == 3
    await follow_page(read, postgres, tmp_path)


async def test_the_tutorial_works_step_by_step(postgres: Databases, tmp_path: Path) -> None:
    read = document("docs/tutorial/support-agent.md")
    assert set(read.files) == {"agents.toml", "shop_tools.py"}
    assert len(read.commands) == 7
    await follow_page(read, postgres, tmp_path)


async def test_a_waiting_run_survives_a_back_up_and_a_restore(
    postgres: Databases, tmp_path: Path
) -> None:
    guide = page("docs/how-to/back-up.md")
    async with postgres.fresh() as url:
        async with serving(url) as server, server.client() as client:
            started = await client.start("demo", "delete /tmp/notes.md")
            await client.settled(started["run_id"])
            await in_shell(block_after(guide, "back up"), tmp_path, DATABASE_URL=url)
    async with postgres.fresh("template1") as url:
        await in_shell(block_after(guide, "restore"), tmp_path, DATABASE_URL=url)
        async with serving(url) as server, server.client() as client:
            waiting = await client.run(started["run_id"])
            await client.decide(waiting, "approve")
            done = await client.ended(started["run_id"])
            assert done["outcome"] == "succeeded"
            assert await client.log(f"/v1/runs/{started['run_id']}")
