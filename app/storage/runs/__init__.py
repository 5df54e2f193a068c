"""Runs: rows, claims, the queue of a thread, and their tool calls. Checkpoints are in `storage/checkpoints`."""
