"""A rollout that is stopped: replicas of this version serve a database that the next version has migrated."""

from pathlib import Path
from typing import Any

import pytest

from app.storage.schema_revision import newest_revision
from tests.support.commands import holdfast
from tests.support.newer_versions import NewRevision, migrate_with
from tests.support.servers import serving, working

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

ADDITIVE = NewRevision(
    "9001_next",
    statements=(
        "ALTER TABLE runs ADD COLUMN priority integer NOT NULL DEFAULT 0",
        "ALTER TABLE threads ADD COLUMN color text",
        "CREATE INDEX runs_by_priority ON runs (priority)",
        "CREATE TABLE colors (name text PRIMARY KEY)",
    ),
)
SECOND = NewRevision("9002_after_next")
RESTRICTING = NewRevision("9001_restricting", is_additive=False)


def state_of(health: dict[str, Any]) -> tuple[str, str, str]:
    schema = health["database_schema"]
    return health["status"], schema["status"], schema["revision"]


async def test_replicas_of_this_version_run_and_restart_after_an_additive_migration(
    database_url: str, agents: Path, tmp_path: Path
) -> None:
    async with serving(database_url, agents=agents) as before, before.client() as client:
        waiting = await client.start("quick", 'CALL risky {"what": "it"}')
        await client.settled(waiting["id"])
        await migrate_with(database_url, tmp_path / "next", [ADDITIVE])
        run = await client.start("quick", "after the migration")
        assert (await client.settled(run["id"]))["outcome"] == "succeeded"
        assert state_of(await client.get("/health")) == ("healthy", "ahead", ADDITIVE.name)

    async with (
        serving(database_url, agents=agents, role="api", migrate=1) as restarted,
        working(database_url, agents=agents),
        restarted.client() as client,
    ):
        health = await client.get("/health")
        assert state_of(health) == ("healthy", "ahead", ADDITIVE.name)
        assert health["database_schema"]["expected"] == newest_revision()
        await client.decide(await client.run(waiting["id"]), "approve")
        assert (await client.ended(waiting["id"]))["outcome"] == "succeeded"
        run = await client.start("quick", "after the restart")
        assert (await client.settled(run["id"]))["outcome"] == "succeeded"


async def test_the_commands_say_that_the_database_is_one_ahead(
    database_url: str, tmp_path: Path
) -> None:
    await migrate_with(database_url, tmp_path / "next", [ADDITIVE])
    described = f"{ADDITIVE.name}, one ahead of this version ({newest_revision()})"
    for _ in range(2):
        migrated = await holdfast("migrate", DATABASE_URL=database_url)
        assert (migrated.code, migrated.out) == (0, f"The database is at revision {described}.\n")
    checked = await holdfast("doctor", DATABASE_URL=database_url, HOLDFAST_PORT="9")
    assert f"migrations: revision {described}\n" in checked.out


@pytest.mark.parametrize(
    "revisions", [[ADDITIVE, SECOND], [RESTRICTING], [RESTRICTING, SECOND]], ids=len
)
async def test_a_database_that_is_too_far_ahead_is_refused(
    database_url: str, agents: Path, tmp_path: Path, revisions: list[NewRevision]
) -> None:
    async with serving(database_url, agents=agents) as before, before.client() as client:
        await migrate_with(database_url, tmp_path / "next", revisions)
        # Running processes continue. Health says that a restart wouldn't work.
        newest = revisions[-1].name
        assert state_of(await client.get("/health")) == ("degraded", "too_new", newest)
    for command in ("serve", "worker", "migrate"):
        failed = await holdfast(command, DATABASE_URL=database_url, HOLDFAST_PORT="0")
        assert failed.code != 0
        assert "migrated by a newer version" in failed.err
        assert newest in failed.err
        assert "Traceback" not in failed.err
    checked = await holdfast("doctor", DATABASE_URL=database_url, HOLDFAST_PORT="9")
    assert "problem  database: The database was migrated by a newer version" in checked.out
