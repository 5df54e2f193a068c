"""Holdfast: LLM agents as a service.

Two planes meet in one Postgres. The control plane (`api`, `commands`, `queries`) turns each request into
one transaction. The execution plane (`workers`, `backends`, `runtime`) executes the runs that this
process has claimed. HTTP never calls the runtime; the runtime knows neither HTTP nor SQL. Calls go down
the layers that import-linter checks (pyproject.toml); events come back up through the event log.

`docs/explanation/architecture.md` follows the four main journeys through these files. Everything here is
private: authors of agents import from `holdfast`.
"""
