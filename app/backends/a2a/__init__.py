"""The client of an A2A agent. Code for every kind of remote agent is in `backends/remote`."""
