"""MCP servers for tests, as programs of their own."""
