"""Runs that a worker has claimed."""
