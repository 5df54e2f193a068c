"""Routes of threads. The rules that these routes call are in `commands/threads` and `queries`."""
