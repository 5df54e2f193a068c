"""Promises, over HTTP, with real processes."""
