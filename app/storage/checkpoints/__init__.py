"""Checkpoints of runs: `batched` writes many in one statement, `single` everything that needs more."""
