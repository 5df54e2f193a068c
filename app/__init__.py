"""Holdfast: LLM agents as a service.

Two planes meet in one Postgres. The control plane (`api`, `control`) turns each request into one
transaction; the execution plane (`dispatch`, `backends`, `runtime`) advances the runs it has claimed.
HTTP never calls the runtime, the runtime never speaks HTTP or SQL. Calls go down the layer list that
import-linter holds (pyproject.toml), events come back up through the log.

To place anything else, read these seven first: `domain/runs.py`, `domain/tickets.py`,
`runtime/loop.py`, `storage/checkpoints.py`, `dispatch/execution.py`, `events/follow.py`, `api/runs.py`.
"""
