"""Files: their rows, the threads that use them, and their bytes in chunks."""
