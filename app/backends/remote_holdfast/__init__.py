"""The client of another Holdfast server. Code for every kind of remote agent is in `backends/remote`."""
