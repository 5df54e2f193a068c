"""Access tokens for MCP servers by OAuth 2.1: for this server itself, or for each subject that gives access."""
