"""Runs that end while no worker executes them. The end of an executing run is in `runtime/endings`."""
