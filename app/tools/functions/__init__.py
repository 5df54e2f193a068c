"""A Python function as a tool: its signature, the call, its output and its result."""
