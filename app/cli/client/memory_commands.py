"""`holdfast memory`: what agents keep across runs, seen, erased and exported."""

from typing import Annotated
from urllib.parse import quote

import typer

from app.cli import environment
from app.cli.client.api_client import command_client
from app.cli.client.output import visible
from app.cli.client.table import Columns, moment, short, write_list
from app.cli.exit_codes import ExitCode, exit_with
from app.cli.options import (
    AsJson,
    CreatedAfter,
    CreatedBefore,
    Key,
    Limit,
    ListOrder,
    Url,
)
from app.domain.json_values import compact

_COLUMNS: Columns = {
    "KEY": lambda memory: memory["key"],
    "OWNER": lambda memory: ":".join(filter(None, (memory["scope"], memory["subject"]))),
    "CHANGED": lambda memory: moment(memory["updated_at"]),
    "VALUE": lambda memory: short(memory["value"]),
}
MemoryKey = Annotated[str, typer.Argument(metavar="KEY", help="The key of the memory.")]
Scope = Annotated[
    str | None,
    typer.Option(
        help="Whose memories: own, subject, user, agent, tenant; for lists also all.",
        show_default="your own",
    ),
]
Subject = Annotated[
    str | None, typer.Option(help="The subject, the user or the agent, for the scope of this name.")
]
Search = Annotated[str | None, typer.Option("--search", help="Only memories with these words.")]


def path_of(key: str) -> str:
    return f"/v1/memories/{quote(key, safe='')}"


def list_memories(
    search: Search = None,
    scope: Scope = None,
    subject: Subject = None,
    agent: Annotated[str | None, typer.Option(help="Only memories that this agent saved.")] = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    order: ListOrder = None,
    as_json: AsJson = False,
    limit: Limit = 20,
    url: Url = None,
    key: Key = None,
) -> None:
    """List memories. Times are as in 2026-01-31T08:00:00Z."""
    filters = {
        "q": search,
        "scope": scope,
        "subject": subject,
        "agent_id": agent,
        "created_after": created_after,
        "created_before": created_before,
        "order": order,
    }
    with command_client(*environment.server_settings(url, key)) as server:
        write_list(server.pages("/v1/memories", filters), _COLUMNS, as_json=as_json, limit=limit)


def show(
    memory: MemoryKey,
    scope: Scope = None,
    subject: Subject = None,
    as_json: AsJson = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Print the value of a memory."""
    with command_client(*environment.server_settings(url, key)) as server:
        found = server.get(path_of(memory), scope=scope, subject=subject)
    value = found["value"]
    if as_json:
        typer.echo(compact(found))
    else:
        typer.echo(visible(value) if isinstance(value, str) else compact(value))


def forget(
    memory: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The key of the memory.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete all memories of the owner.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before --all.")] = False,
    scope: Scope = None,
    subject: Subject = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Delete a memory, or with --all every memory of an owner. Nothing brings them back."""
    if (memory is None) is not everything:
        raise typer.BadParameter("name one memory, or use --all.", param_hint="KEY")
    with command_client(*environment.server_settings(url, key)) as server:
        if memory is not None:
            server.delete(path_of(memory), scope=scope, subject=subject)
            typer.echo(f"deleted {visible(memory)}")
            return
        if not yes and not typer.confirm("Delete all memories of this owner?"):
            exit_with("Nothing was deleted.", ExitCode.CANCELLED)
        deleted = server.delete("/v1/memories", scope=scope or "own", subject=subject)
        typer.echo(f"deleted {deleted['deleted']} memories")


def export(
    search: Search = None,
    scope: Scope = None,
    subject: Subject = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Print all memories, one JSON object per line, the oldest first."""
    query = {"q": search, "scope": scope, "subject": subject}
    with command_client(*environment.server_settings(url, key)) as server:
        for line in server.lines("/v1/memory-export", query):
            typer.echo(line)
