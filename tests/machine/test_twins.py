"""The rows in memory and those in Postgres are the same for the same scripts."""

EXAMPLES = 30
