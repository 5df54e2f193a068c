"""Send messages to runs and threads, and change what no run has read yet."""
