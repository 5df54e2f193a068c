"""Backup and restore of the embedded database, with real servers; nothing is ever replaced."""

import os
import re
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import rmtree

import pytest

from tests.support.commands import holdfast
from tests.support.documents import block_after, in_shell, page
from tests.support.streams import Client
from tests.support.terminals import started

pytestmark = pytest.mark.anyio

SERVES = re.compile(r"serves on (http://\S+)")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Outside pytest's folders, which the server's own user couldn't enter."""
    made = Path(tempfile.mkdtemp(prefix="holdfast-backup-"))
    yield made
    rmtree(made, ignore_errors=True)


@asynccontextmanager
async def serving(data_dir: Path) -> AsyncIterator[Client]:
    """A server on its embedded database; stopped gracefully."""
    async with started("serve", "--port", "0", HOLDFAST_DATA_DIR=str(data_dir)) as server:
        async with Client((await server.printed(SERVES))[1]) as client:
            yield client
        server.terminate()
        assert await server.gone() == 0


async def test_a_backup_of_a_running_server_is_restored_into_a_fresh_folder(folder: Path) -> None:
    old, new, file = folder / "old", folder / "new", folder / "holdfast.dump"
    async with serving(old) as client:
        done = await client.settled((await client.start("demo", "Hello."))["id"])
        waiting = await client.settled((await client.start("demo", "delete /tmp/x"))["id"])
        written = await holdfast("backup", str(file), HOLDFAST_DATA_DIR=str(old))
        assert written.code == 0, written.err
        after = await client.start("demo", "After the backup.")
    size = f"{file.stat().st_size:,} bytes"
    assert f"Wrote {file}: {size}, with 2 threads and 2 runs" in written.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    restored = await holdfast("restore", str(file), HOLDFAST_DATA_DIR=str(new))
    assert restored.code == 0, restored.err
    assert restored.out.startswith("Restored 2 threads and 2 runs (revision ")
    assert set(os.listdir(folder)) == {"old", "new", "holdfast.dump"}
    async with serving(new) as client:
        listed = {run["id"] for run in (await client.get("/v1/runs"))["items"]}
        assert listed == {done["id"], waiting["id"]}
        assert after["id"] not in listed
        assert await client.log(f"/v1/runs/{done['id']}")
        await client.decide(await client.run(waiting["id"]), "approve")
        assert (await client.ended(waiting["id"]))["outcome"] == "succeeded"


async def test_the_commands_of_the_guide_work(folder: Path) -> None:
    guide = page("docs/how-to/back-up.md")
    async with serving(folder / "old") as client:
        run = await client.settled((await client.start("demo", "Hello."))["id"])
    for step, data_dir in (("back up", "old"), ("restore", "new")):
        commands = block_after(guide, f"{step} the embedded database")
        await in_shell(commands, folder, HOLDFAST_DATA_DIR=str(folder / data_dir))
    async with serving(folder / "new") as client:
        assert (await client.run(run["id"]))["outcome"] == "succeeded"


async def test_no_file_is_replaced_or_left_incomplete(folder: Path) -> None:
    data_dir, file = folder / "data", folder / "holdfast.dump"
    settings = {"HOLDFAST_DATA_DIR": str(data_dir)}
    nothing = await holdfast("backup", str(file), **settings)
    assert f"There is no database in {data_dir}" in nothing.err
    async with serving(data_dir) as client:
        await client.settled((await client.start("demo", "Hello."))["id"])
    file.write_text("precious")
    exists = await holdfast("backup", str(file), **settings)
    assert f"{file} exists, and nothing was written" in exists.err
    no_dump = await holdfast("restore", str(file), HOLDFAST_DATA_DIR=str(folder / "new"))
    assert f"{file} isn't a complete dump" in no_dump.err
    file.unlink()
    assert (await holdfast("backup", str(file), **settings)).code == 0
    over = await holdfast("restore", str(file), **settings)
    assert f"There is a database in {data_dir}, and nothing was changed" in over.err
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    cut = await holdfast("restore", str(file), HOLDFAST_DATA_DIR=str(folder / "new"))
    assert f"{file} isn't a complete dump" in cut.err
    unwritable = await holdfast("backup", str(folder / "nowhere" / "x"), **settings)
    assert "can't be written" in unwritable.err
    for failed in (nothing, exists, no_dump, over, cut, unwritable):
        assert (failed.code, failed.out) == (1, "")
        assert "Traceback" not in failed.err
    assert set(os.listdir(folder)) == {"data", "holdfast.dump"}
    async with serving(data_dir) as client:
        assert len((await client.get("/v1/runs"))["items"]) == 1


async def test_a_dump_of_another_program_is_refused(folder: Path, postgres_url: str) -> None:
    """`postgres_url` names an empty database."""
    command = f'pg_dump --format=custom --file={folder / "other"} "$DATABASE_URL"'
    await in_shell(command, folder, DATABASE_URL=postgres_url)
    refused = await holdfast(
        "restore", str(folder / "other"), HOLDFAST_DATA_DIR=str(folder / "new")
    )
    assert refused.code == 1
    assert "isn't a backup of a Holdfast database" in refused.err
    assert os.listdir(folder) == ["other"]


async def test_for_a_database_of_your_own_the_commands_of_postgres_are_named(
    database_url: str,
) -> None:
    for command, program in (("backup", "pg_dump --format"), ("restore", "pg_restore --clean")):
        refused = await holdfast(command, "x.dump", DATABASE_URL=database_url)
        assert (refused.code, refused.out) == (1, "")
        assert program in refused.err
