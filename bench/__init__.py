"""Repeatable measurements: `python -m bench`, or `make bench`, prints one table.

Speed is told as a ratio to the *floor*, a process that only passes the model's stream on and keeps
nothing. Both are driven by the same client against the same fake model, turn by turn in the same run, so
that a busy or slow machine moves both. May import `app` and `tests.support`; nothing imports it.
"""
