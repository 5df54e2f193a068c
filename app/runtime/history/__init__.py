"""What the model is shown of a thread's log. The log itself never changes."""
