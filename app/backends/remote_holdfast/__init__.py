"""The client of another Holdfast. What every remote agent has in common is in `backends/remote`."""
