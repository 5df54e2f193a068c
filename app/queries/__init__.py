"""Queries: they read, and write neither rows nor events.

What writes is in `commands`. Event streams are read in `events/follow`.
"""
