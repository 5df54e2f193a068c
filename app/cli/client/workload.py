"""`holdfast workers` and `holdfast stats`: the processes of a server, and how its runs ended."""

import json
from typing import Annotated, Any

import typer

from app.cli import environment
from app.cli.client.api_client import command_client
from app.cli.client.table import Columns, moment, write_list, write_table
from app.cli.options import AsJson, Key, Limit, Url

_WORKERS: Columns = {
    "WORKER": lambda worker: worker["id"],
    "ROLE": lambda worker: worker["role"],
    "HOST": lambda worker: f"{worker['host']}:{worker['pid']}",
    "ALIVE": lambda worker: "yes" if worker["is_alive"] else "no",
    "EXECUTING": lambda worker: str(worker["executing"]),
    "STARTED": lambda worker: moment(worker["started_at"]),
}
_BUCKETS: Columns = {
    "FROM": lambda bucket: moment(bucket["begins_at"]),
    "SUCCEEDED": lambda bucket: str(bucket["runs"]["succeeded"]),
    "FAILED": lambda bucket: str(bucket["runs"]["failed"]),
    "OTHERS": lambda bucket: str(_other_ends(bucket["runs"])),
    "UNFINISHED": lambda bucket: str(bucket["runs"]["unfinished"]),
    "TOKENS": lambda bucket: str(bucket["input_tokens"] + bucket["output_tokens"]),
}
_SHOWN_APART = ("succeeded", "failed", "unfinished")


def list_workers(
    as_json: AsJson = False, limit: Limit = 50, url: Url = None, key: Key = None
) -> None:
    """List the processes of a server, the oldest first."""
    with command_client(*environment.server_settings(url, key)) as server:
        write_list(server.pages("/v1/workers", {}), _WORKERS, as_json=as_json, limit=limit)


def show_statistics(
    bucket: Annotated[str, typer.Option(help="Width of the parts: minute, hour or day.")] = "hour",
    begin: Annotated[
        str | None, typer.Option("--from", help="Beginning, as in 2026-01-31T08:00:00Z.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="End. By default now.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Show how the runs of a period ended, and what is to be done now. By default of the last 24 hours."""
    period = {"bucket": bucket, "from": begin, "to": end, "agent_id": agent}
    with command_client(*environment.server_settings(url, key)) as server:
        statistics = server.get("/v1/stats/runs", **period)
        queue = server.get("/v1/queue", agent_id=agent)
    if as_json:
        typer.echo(json.dumps({"statistics": statistics, "queue": queue}))
        return
    write_table([one for one in statistics["buckets"] if any(one["runs"].values())], _BUCKETS)
    if not statistics["is_complete"]:
        typer.echo("The period has more runs: only the newest are counted.", err=True)
    waiting = sum(queue["waiting"].values())
    typer.echo(
        f"Now: {queue['ready']} ready, {queue['executing']} executing, {waiting} waiting, "
        f"{queue['queued_behind']} queued behind others, {queue['open_tickets']} open tickets"
    )


def _other_ends(runs: dict[str, Any]) -> int:
    return sum(count for name, count in runs.items() if name not in _SHOWN_APART)
