"""Summaries of long threads, made beside the run. Which messages are summarised is in `runtime/history`."""
