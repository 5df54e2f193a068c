"""Slow journeys, run by `make test-system`."""
