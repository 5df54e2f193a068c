"""All SQL and every table; nothing outside this package writes a statement.

One module per noun, one named function per statement, which says in a sentence what it guarantees.
Domain types go in and come out; no row leaves. Locks are taken in this order, never another:
thread → run → tickets → tasks → event head, each set sorted by id. Text is made storable at this border.
May import `domain`, `clock` and `telemetry` only.
"""
