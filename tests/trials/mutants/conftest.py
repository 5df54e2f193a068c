"""What these stand on: a provider of their own, whose moods disturb nobody else, and a folder."""

from tests.journeys.chaos.conftest import folder, provider

__all__ = ["folder", "provider"]
