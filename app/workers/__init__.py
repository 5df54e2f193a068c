"""Executing runs: slots, claims, heartbeats, takeovers.

A delivery is only a wake-up: the worker claims the run or drops the delivery. The run's row names its
owner, and every write is fenced by `attempt`: if two workers believe that they own a run, one of them
writes. What happens inside a run is in `runtime`.
"""
