"""Decide tickets, expire them, and remember decisions as rules. Reading the inbox is in `queries`."""
