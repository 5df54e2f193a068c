"""Repeatable measurements: `python -m bench`, or `make bench`, prints one table.

Speed is a ratio to the *floor*, a process that only forwards the model's stream and stores
nothing. The same client drives both against the same fake model, turn by turn in the same run. So a busy or
slow machine changes both. May import `app` and `tests.support`; nothing imports it.
"""
