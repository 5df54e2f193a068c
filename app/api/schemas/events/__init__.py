"""Schemas of events: their union, and the parts that events and records of runs share. Requests and responses of
routes are in the modules beside this package, and in `runs`."""
