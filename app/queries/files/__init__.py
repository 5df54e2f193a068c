"""Queries about files: one, a page of them, and their bytes."""
