"""Limits on requests: body size, connections, long polls, and what a stopping server still accepts."""
