"""Routes of files, and the bytes of uploads and downloads."""
