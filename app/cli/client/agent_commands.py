"""`holdfast agents`: which agents a server offers."""

from typing import Annotated

import typer

from app.cli import environment
from app.cli.client.api_client import command_client
from app.cli.client.table import Columns, short, write_list
from app.cli.options import AsJson, Key, Limit, Url
from app.domain.slices import Order

_COLUMNS: Columns = {
    "AGENT": lambda agent: agent["id"],
    "MODEL": lambda agent: agent["model"] or f"({agent['endpoint']['backend']})",
    "TOOLS": lambda agent: ", ".join(agent["tools"]),
    "DESCRIPTION": lambda agent: short(agent["description"]),
}


def list_agents(
    order: Annotated[
        Order | None,
        typer.Option(help="desc begins with the last one of the file."),
    ] = None,
    as_json: AsJson = False,
    limit: Limit = 50,
    url: Url = None,
    key: Key = None,
) -> None:
    """List the agents, in the order of the agents file. The first one is the default of `run`."""
    with command_client(*environment.server_settings(url, key)) as server:
        write_list(
            server.pages("/v1/agents", {"order": order}), _COLUMNS, as_json=as_json, limit=limit
        )
