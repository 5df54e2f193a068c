"""What trials stand on: a provider of their own, whose moods disturb nobody else, and a folder."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.providers import FakeProvider, fake_provider


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a path that is short enough for a socket, and open to the user that Postgres runs as."""
    made = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)
