"""Memories: what agents keep across runs, whose it is, and what may be kept. Rows are in `storage/memories`."""
