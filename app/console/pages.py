"""Addresses of the console's pages. A page `Name` is drawn by `web/pages/Name.tsx`."""

from collections.abc import Mapping

FIRST_PAGE = "inbox"

PAGES: Mapping[str, str] = {
    "login": "Login",
    "inbox": "Inbox",
    "tickets/{id}": "Inbox",
    "runs": "Runs",
    "runs/{id}": "Run",
    "threads": "Threads",
    "threads/{id}": "Threads",
    "agents": "Agents",
    "agents/{id}": "Agents",
    "mcp-servers/{id}": "McpServer",
    "memory": "Memories",
    "system": "System",
    "start": "Start",
}
"""The page of each path below /console/."""
