"""Routes of MCP servers, with their schemas."""
