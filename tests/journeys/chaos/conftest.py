"""Fixtures of the trials: their own provider, whose failure modes affect no other test, and a folder."""

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
    """A folder with a path short enough for a socket, accessible to the user that runs Postgres."""
    made = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)
