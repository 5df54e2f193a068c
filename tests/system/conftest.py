"""What the system tier shares: programs that must be there, and the fixtures of the journeys."""

import pytest

from tests.journeys.conftest import agents, client, provider, server, shared_database_url
from tests.system import programs

__all__ = ["agents", "client", "provider", "server", "shared_database_url"]


def pytest_configure(config: pytest.Config) -> None:
    """Fail before anything runs, with one sentence, rather than in the middle or not at all."""
    if wanting := programs.complaints():
        raise pytest.UsageError("\n".join(wanting))
