"""Compression of responses and streams."""
