"""Shares the fixtures of the chaos trials."""

from tests.journeys.chaos.conftest import folder, provider

__all__ = ["folder", "provider"]
