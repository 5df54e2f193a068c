"""Files that clients upload and tools save, and that messages refer to."""
