"""Trials: journeys that take their time, run by `make test-system`; the short ones are among the journeys."""
