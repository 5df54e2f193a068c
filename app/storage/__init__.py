"""All SQL and every table; nothing outside this package writes a statement.

One module per noun, one named function per statement, which says in a sentence what it guarantees.
Domain types go in and come out; no row leaves. Locks are taken in this order, never another:
thread → run → tickets → tasks → key of an event (advisory) → signals → event head, each set sorted by id.
Text is made storable at this border.

What every run passes through is hot: `hot_starts`, `hot_flushes` and `hot_checkpoints` have one statement
per stage, instead of one per step, which is worth three to four times the runs per second. Each commits
by itself and makes every later part depend on the rows that it has locked: what isn't locked isn't
written, so that each is all or nothing per run.

May import `domain`, `clock` and `telemetry` only.
"""
