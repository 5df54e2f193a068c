"""Saving and deleting memories, for clients and for running tool calls."""
