"""A server imports only what it needs, because each replica pays for it with time and memory."""

import subprocess
import sys

import pytest
from alembic.script import ScriptDirectory

from app.storage import schema_revision, unreleased

_IMPORTED = """
import sys
sys.argv = ["holdfast", "serve"]
import holdfast.__main__, app.cli.commands, app.cli.server.event_loop, app.cli.server.serving
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    found = subprocess.run([sys.executable, "-c", _IMPORTED], check=True, capture_output=True)
    return set(found.stdout.decode().split())


@pytest.mark.parametrize(
    "name",
    [
        "a2a",
        "alembic",
        "attr",
        "app.llm.anthropic.model",
        "app.llm.google.model",
        "genai_prices",
        "greenlet",
        "anthropic",
        "google",
        "mcp",
        "nats",
        "openai",
        "pydantic_ai",
        "pygments",
        "rich",
        "sqlalchemy.orm",
        "yaml",
    ],
)
def test_a_server_does_not_import_what_few_of_them_need(name: str, imported: set[str]) -> None:
    assert name not in imported


def test_revisions_that_are_read_as_text_are_those_of_the_migrations() -> None:
    scripts = ScriptDirectory(str(schema_revision.SCRIPTS))
    assert schema_revision.newest_revision() == scripts.get_current_head()
    known = {script.revision for script in scripts.walk_revisions()}
    assert schema_revision.known_revisions() == known | {
        *unreleased.SUPPORTED,
        *unreleased.TOO_OLD,
    }
