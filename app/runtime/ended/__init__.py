"""Ends of runs that no worker executes. The end of an executing run is in `runtime/endings`."""
