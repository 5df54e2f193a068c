"""Executes a run: the loop, its steps, inference and tool calls.

Storage, events, llm and tools implement the protocols in `ports`. There is no SQL and no HTTP here; `workers`
decides which worker executes a run.
"""
