"""`holdfast mcp`: the MCP servers of a server, and a call of one tool from here."""

from functools import partial
from typing import Annotated

import typer

from app.cli import environment
from app.cli.client.api_client import command_client
from app.cli.client.table import Columns, short, write_list
from app.cli.options import Agents, AsJson, Key, Limit, Url, json_option

_COLUMNS: Columns = {
    "SERVER": lambda server: server["id"],
    "STATE": lambda server: server["state"],
    "PROTOCOL": lambda server: server["protocol"] or "",
    "TOOLS": lambda server: f"{server['tools_offered']} of {server['tools_listed']}",
    "CHANGED": lambda server: str(server["tools_drifted"]),
    "LAST ERROR": lambda server: short(server["last_error"] or ""),
}


def list_servers(
    as_json: AsJson = False, limit: Limit = 50, url: Url = None, key: Key = None
) -> None:
    """List the MCP servers with their state and the number of their tools."""
    with command_client(*environment.server_settings(url, key)) as server:
        write_list(server.pages("/v1/mcp-servers", {}), _COLUMNS, as_json=as_json, limit=limit)


def call(
    server: Annotated[str, typer.Argument(help="The server's name in the agents file.")],
    tool: Annotated[str, typer.Argument(help="The tool's name at the server.")],
    arguments: Annotated[str, typer.Argument(help="The arguments, as a JSON object.")] = "{}",
    agents: Agents = None,
) -> None:
    """Start an MCP server of the agents file here, call one tool, and print its result."""
    from app.cli.server import event_loop  # noqa: PLC0415  commands of clients start faster without it
    from app.cli.setup import mcp_servers  # noqa: PLC0415  commands of clients start faster without it

    given = json_option("ARGUMENTS", arguments)
    if not isinstance(given, dict):
        raise typer.BadParameter("must be a JSON object.", param_hint="ARGUMENTS")
    settings = event_loop.prepare(least_level="error", agents=agents)
    event_loop.run(partial(mcp_servers.call_tool, settings, server, tool, given))
