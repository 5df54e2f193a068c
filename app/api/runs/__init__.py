"""Routes of runs. The rules that these routes call are in `commands/runs` and `queries`."""
