"""Shares the fixtures of the journeys."""

from tests.journeys.conftest import agents, client, provider, server, shared_database_url

__all__ = ["agents", "client", "provider", "server", "shared_database_url"]
