"""Turns a Python function into a tool: its signature, the call, its output and its result."""
