"""Send messages to runs and threads, and change messages that no run has read yet."""
