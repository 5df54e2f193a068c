"""How a run advances: the one loop, its steps, inference and tool calls.

The world is reached through the protocols of `ports`, which storage, events, llm and tools satisfy. There is
no SQL and no HTTP here; which worker executes a run is decided in `workers`.
"""
