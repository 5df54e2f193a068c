"""Queries about files: one, a page of them, their bytes, and the artifacts of a run."""
