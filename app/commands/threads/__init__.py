"""Create, change, fork, cancel and delete threads. What happens to one run is in `commands/runs`."""
