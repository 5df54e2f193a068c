"""Tools of MCP servers, behind the `Tool` protocol.

Only `protocol` imports the library `mcp`, and only when the first server is started. What is stored goes through
the port in `listings`; the SQL for it is in `app/storage/mcp`.
"""
