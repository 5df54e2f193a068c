"""All tables and all SQL: one named function per statement, whose docstring says what it guarantees.

Domain types go in and come out; no row leaves. Locks are taken in this order and no other:
thread → run → tickets → tasks → event head, each set sorted by id.

The stages that every run passes have one statement each, which is worth three to four times the runs per
second: `runs/claims`, `events/batched_append` and `checkpoints/batched`. The embedded server is in
`embedded_postgres`.
"""
