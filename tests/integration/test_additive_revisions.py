"""A revision that is marked additive has no statement that the version before could fail on."""

from collections.abc import Callable
from types import ModuleType

import pytest
import sqlalchemy as sa
from alembic import op
from alembic.script import ScriptDirectory

from app.storage.schema_revision import SCRIPTS
from tests.support.additive_revisions import harmful_statements


def revision_that(upgrade: Callable[[], object]) -> ModuleType:
    revision = ModuleType("revision")
    revision.upgrade = upgrade  # type: ignore[attr-defined]
    return revision


def add_shelf(*, nullable: bool = True, default: str | None = None) -> None:
    op.add_column(
        "threads", sa.Column("shelf", sa.Text(), nullable=nullable, server_default=default)
    )


def create_shelves(on_delete: str | None) -> None:
    op.create_table(
        "shelves",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant", "run_id"], ["runs.tenant", "runs.id"], ondelete=on_delete
        ),
    )


def test_revisions_that_are_marked_additive_only_add() -> None:
    scripts = ScriptDirectory(str(SCRIPTS)).walk_revisions()
    found = {
        script.revision: harmful_statements(script.module)
        for script in scripts
        if script.down_revision is not None and script.module.is_additive
    }
    assert not any(found.values()), found


def replace_index(*, unique: bool = False) -> None:
    op.drop_index("runs_resumed")
    op.create_index("runs_resumed", "runs", ["created_at"], unique=unique)


def rename_index() -> None:
    op.drop_index("runs_resumed")
    op.create_index("runs_paused", "runs", ["created_at"])


def replace_unique_index() -> None:
    op.drop_index("runs_one_per_thread")
    op.create_index("runs_one_per_thread", "runs", ["tenant", "thread_id"])


HARMFUL: dict[str, Callable[[], object]] = {
    "a column is dropped": lambda: op.drop_column("runs", "outcome"),
    "a table is dropped": lambda: op.drop_table("inputs"),
    "a table is renamed": lambda: op.rename_table("inputs", "messages_to_come"),
    "a column is renamed": lambda: op.alter_column("runs", "outcome", new_column_name="result"),
    "a type is changed": lambda: op.alter_column("runs", "attempt", type_=sa.Text()),
    "a column may no longer be NULL": lambda: op.alter_column("runs", "outcome", nullable=False),
    "a default is removed": lambda: op.alter_column("runs", "created_at", server_default=None),
    "a new column needs a value": lambda: add_shelf(nullable=False),
    "a check of known columns": lambda: op.create_check_constraint("c", "runs", "attempt < 9"),
    "known columns become unique": lambda: op.create_unique_constraint("u", "runs", ["attempt"]),
    "a unique index on known columns": lambda: op.create_index(
        "i", "runs", ["attempt"], unique=True
    ),
    "a constraint is dropped": lambda: op.drop_constraint("runs_pkey", "runs"),
    "an index is dropped": lambda: op.drop_index("runs_queued"),
    "rows of a known table can't be deleted": lambda: create_shelves(None),
    "an index gets another name": rename_index,
    "an index becomes unique": lambda: replace_index(unique=True),
    "an index is no longer unique": replace_unique_index,
    "a second action is hidden behind an addition": lambda: op.execute(
        "ALTER TABLE runs ADD COLUMN a integer, DROP COLUMN outcome"
    ),
    "rows are changed": lambda: op.execute("UPDATE runs SET outcome = NULL"),
    "rows are deleted": lambda: op.execute("DELETE FROM runs"),
}


@pytest.mark.parametrize("upgrade", HARMFUL.values(), ids=HARMFUL)
def test_a_revision_is_not_additive_if(upgrade: Callable[[], object]) -> None:
    assert harmful_statements(revision_that(upgrade))


def a_unique_key() -> None:
    add_shelf()
    op.create_index("threads_shelf", "threads", ["tenant", "shelf"], unique=True)
    op.create_check_constraint("threads_shelf", "threads", "char_length(shelf) <= 200")


def a_reference_to_a_new_table() -> None:
    create_shelves("CASCADE")
    op.create_index("shelves_of_a_run", "shelves", ["run_id"], unique=True)
    op.create_check_constraint("shelves_tenant", "shelves", "tenant <> ''")


HARMLESS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "a column that may be NULL": add_shelf,
    "a column with a default": lambda: add_shelf(nullable=False, default="top, left"),
    "a unique index on a new column, and its check": a_unique_key,
    "a table whose rows go with their run": a_reference_to_a_new_table,
    "an index": lambda: op.create_index("i", "runs", ["attempt"]),
    "an index that gets other columns": replace_index,
}


@pytest.mark.parametrize("upgrade", HARMLESS.values(), ids=HARMLESS)
def test_a_revision_is_additive_if_it_adds(upgrade: Callable[[], object]) -> None:
    assert harmful_statements(revision_that(upgrade)) == []
