"""`holdfast runs`: the runs of a server."""

from typing import Annotated

import typer

from app.cli import environment
from app.cli.client.api_client import command_client
from app.cli.client.table import Columns, Item, moment, short, write_list
from app.cli.options import (
    AsJson,
    CreatedAfter,
    CreatedBefore,
    Key,
    Limit,
    ListOrder,
    Metadata,
    Url,
    metadata_filters,
)
from app.domain.runs.runs import RunStatus, WaitingReason
from app.domain.runs.terminations import Outcome


def list_runs(
    status: Annotated[RunStatus | None, typer.Option(help="Only runs with this status.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only runs that ended so.")] = None,
    waiting_reason: Annotated[
        WaitingReason | None, typer.Option(help="Only runs that wait for this reason.")
    ] = None,
    paused: Annotated[
        bool | None,
        typer.Option("--paused/--not-paused", help="Only runs that are paused, or not."),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only runs of this thread.")] = None,
    thread_key: Annotated[
        str | None, typer.Option(help="Only runs of the thread with this key.")
    ] = None,
    parent: Annotated[str | None, typer.Option(help="Only children of this run.")] = None,
    root: Annotated[
        str | None, typer.Option(help="Only this run and all runs below it, by its id.")
    ] = None,
    termination_code: Annotated[
        str | None, typer.Option(help="Only runs that ended with this code.")
    ] = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    metadata: Metadata = None,
    order: ListOrder = None,
    as_json: AsJson = False,
    limit: Limit = 20,
    url: Url = None,
    key: Key = None,
) -> None:
    """List runs. Times are as in 2026-01-31T08:00:00Z."""
    filters: dict[str, str | bool | None] = {
        "status": status,
        "outcome": outcome,
        "waiting_reason": waiting_reason,
        "paused": paused,
        "agent_id": agent,
        "root_run_id": root,
        "termination_code": termination_code,
        "created_after": created_after,
        "created_before": created_before,
        "order": order,
        **metadata_filters(metadata),
    }
    path = "/v1/runs" if parent is None else f"/v1/runs/{parent}/children"
    if parent is None:
        filters |= {"thread_id": thread, "thread_key": thread_key}
    elif thread is not None or thread_key is not None:
        option = "--thread" if thread is not None else "--thread-key"
        raise typer.BadParameter("can't be combined with --parent.", param_hint=option)
    with command_client(*environment.server_settings(url, key)) as server:
        write_list(server.pages(path, filters), _COLUMNS, as_json=as_json, limit=limit)


def _state(run: Item) -> str:
    match run["status"]:
        case "waiting":
            return f"waiting: {run['waiting']['reason']}"
        case "done":
            return str(run["outcome"])
        case status:
            return str(status)


_COLUMNS: Columns = {
    "RUN": lambda run: run["id"],
    "AGENT": lambda run: run["agent_id"],
    "STATUS": _state,
    "CREATED": lambda run: moment(run["created_at"]),
    "OUTPUT": lambda run: short(run["final_output"] or ""),
}
