"""Fixtures of the console's unit tests."""

from pathlib import Path

import pytest

from tests.support.console import built_console


@pytest.fixture(scope="session")
def static() -> Path:
    return built_console()
