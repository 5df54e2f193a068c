"""The client of an A2A agent. What every remote agent has in common is in `backends/remote`."""
