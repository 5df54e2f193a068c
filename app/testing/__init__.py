"""Runs in memory, for tests of agents: the real loop, tools, plugins and gate; no server and no database.

One thread and its newest run are stored, with the same checks as the tables. The public names are in
`holdfast.testing`.
"""
