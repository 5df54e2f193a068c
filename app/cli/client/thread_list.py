"""`holdfast threads`: the threads of a server."""

from typing import Annotated

import typer

from app.cli import environment
from app.cli.client.api_client import command_client
from app.cli.client.table import Columns, moment, short, write_list
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

_COLUMNS: Columns = {
    "THREAD": lambda thread: thread["id"],
    "KEY": lambda thread: short(thread["key"] or ""),
    "MESSAGES": lambda thread: str(thread["message_count"]),
    "CREATED": lambda thread: moment(thread["created_at"]),
    "TITLE": lambda thread: short(thread["title"] or ""),
}


def list_threads(
    thread_key: Annotated[str | None, typer.Option(help="Only the thread with this key.")] = None,
    resource: Annotated[
        str | None, typer.Option(help="Only threads with this resource id.")
    ] = None,
    parent: Annotated[str | None, typer.Option(help="Only children of this thread.")] = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    metadata: Metadata = None,
    order: ListOrder = None,
    as_json: AsJson = False,
    limit: Limit = 20,
    url: Url = None,
    key: Key = None,
) -> None:
    """List threads. Times are as in 2026-01-31T08:00:00Z."""
    filters = {
        "key": thread_key,
        "resource_id": resource,
        "parent_thread_id": parent,
        "created_after": created_after,
        "created_before": created_before,
        "order": order,
        **metadata_filters(metadata),
    }
    with command_client(*environment.server_settings(url, key)) as server:
        write_list(server.pages("/v1/threads", filters), _COLUMNS, as_json=as_json, limit=limit)
