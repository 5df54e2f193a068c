"""How agents name tools of MCP servers: `github/create_*` in `tools`, and `github__create_issue` in rules."""

from collections.abc import Collection

MCP_SEPARATOR = "/"
"""Between the server's name and its tools, in an agent's `tools`."""
MCP_JOINT = "__"
"""Between the server's name and the tool's, as models and rules write them."""


def servers_in(references: Collection[str]) -> frozenset[str]:
    """The servers that an agent's `tools` name."""
    return frozenset(
        each.partition(MCP_SEPARATOR)[0] for each in references if MCP_SEPARATOR in each
    )


def may_name_mcp_tool(name: str, references: Collection[str]) -> bool:
    """Whether it may be a tool of a server that the agent names. Which tools there are is known later."""
    server, joint, tool = name.partition(MCP_JOINT)
    return bool(joint and tool) and server in servers_in(references)
