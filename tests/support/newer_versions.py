"""A newer version of Holdfast, as far as its migrations go: this version's, and further revisions."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.storage import migrations
from app.storage.schema_revision import SCRIPTS, newest_revision

_REVISION = '''"""A revision of a newer version."""

from alembic import op

revision = "{revision}"
down_revision = "{previous}"
is_additive = {is_additive}


def upgrade() -> None:
    for statement in {statements}:
        op.execute(statement)
'''


@dataclass(frozen=True, slots=True)
class NewRevision:
    name: str
    is_additive: bool = True
    statements: tuple[str, ...] = ()


async def migrate_with(url: str, folder: Path, revisions: Sequence[NewRevision]) -> None:
    """What `holdfast migrate` of a version does that has these revisions after the newest one here."""
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    previous = newest_revision()
    for one in revisions:
        text = _REVISION.format(
            revision=one.name,
            previous=previous,
            is_additive=one.is_additive,
            statements=one.statements,
        )
        (folder / "versions" / f"{one.name}.py").write_text(text)
        previous = one.name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "SCRIPTS", folder)
        await migrations.upgrade(url)
