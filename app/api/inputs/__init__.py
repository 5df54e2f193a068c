"""Routes that send messages to runs and threads, and that list what no run has read yet.

The rules are in `commands/inputs`.
"""
