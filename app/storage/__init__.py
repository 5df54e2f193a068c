"""All tables and all SQL: one named function per statement, whose docstring says what it guarantees.

Functions take and return domain types; no row leaves this package. Locks are taken in this order and no other:
thread → run → tickets → tasks → event head, each set sorted by id.

Each stage that every run passes is one statement, which allows three to four times as many runs per
second: `runs/claims`, `events/batched_append` and `checkpoints/batched`. The embedded server is in
`embedded_postgres`.
"""
