"""Upload, save and delete files, and refer to them from messages."""
