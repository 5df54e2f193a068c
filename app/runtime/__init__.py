"""How a run advances: the one loop, its steps, inference and tools.

No SQL and no HTTP here. The world is reached through the narrow protocols of `ports.py`, which others
satisfy: storage, events, llm, tools. Nothing here knows which worker it runs on or who listens.
May import `domain` only.
"""
