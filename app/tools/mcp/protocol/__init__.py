"""The clients of MCP servers, built on the library `mcp`. Nothing else imports that library."""
