"""Schemas of runs: requests that start or change one, and what responses show of it."""
