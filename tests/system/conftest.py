"""Checks the programs that the system tests need, and shares the fixtures of the journeys."""

import pytest

from tests.journeys.conftest import agents, client, provider, server, shared_database_url
from tests.system import programs

__all__ = ["agents", "client", "provider", "server", "shared_database_url"]


def pytest_configure(config: pytest.Config) -> None:
    """Fail before the first test when a program is missing."""
    if missing := programs.complaints():
        raise pytest.UsageError("\n".join(missing))
