"""From "a run is ready" to "this worker executes it": slots, claims, heartbeats, takeovers.

A delivery is only a wake-up: whoever gets one claims the run or forgets it. Ownership is a row, proved
alive by one heartbeat a second; every write of an execution is fenced by its attempt, so that two
workers may believe in a run, but only one writes. May import `control` and everything below.
"""
