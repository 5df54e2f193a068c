"""One suite per protocol, run against every implementation of it."""
