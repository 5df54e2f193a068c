"""The Postgres server that Holdfast starts itself. It contains no SQL statement; those are in `storage`."""
