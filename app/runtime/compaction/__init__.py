"""Summaries of long threads, made in a task beside the run. `runtime/history` plans their ranges."""
