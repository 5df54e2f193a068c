"""Memories: their rows, the search, the writes of tool calls, and the audit of deletions."""
