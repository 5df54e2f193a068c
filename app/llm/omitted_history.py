"""What stands before a history that begins with an answer."""

OMITTED_HISTORY = "[The conversation goes on from here; what was before is left out.]"
"""Inserted when a history was shortened. Providers need a message of the user first."""
