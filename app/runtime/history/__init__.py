"""The model's view of a thread's log, and the plan for its summaries. The log itself never changes."""
