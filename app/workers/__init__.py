"""Executing runs: slots, claims, heartbeats, takeovers.

A delivery is only a wake-up: the worker claims the run or drops the delivery. Ownership is a row and every
write is fenced by `attempt`, so two workers may believe they own a run and only one writes. What
happens inside a run is in `runtime`.
"""
