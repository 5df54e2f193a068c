"""The agents file: reading it, checking it, and resolving an agent to its model, tools and plugins.

`catalog` has the contents of the file; `registry` has what this process can execute, including stored
versions. Language models are in `llm`, the agent's specification as data is in `domain/agents`.
"""
