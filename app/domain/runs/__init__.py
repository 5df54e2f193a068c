"""Runs, how they end, and their limits. The messages of a run are in `domain/threads`."""
