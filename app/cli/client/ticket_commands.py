"""Commands about tickets: list them, decide one, and send a signal to those that wait for an event."""

import json
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from app.cli import environment
from app.cli.client.api_client import ApiClient, Body, command_client
from app.cli.client.table import Columns, Item, moment, short, write_list, write_table
from app.cli.exit_codes import ExitCode, exit_with
from app.cli.options import (
    AsJson,
    CreatedAfter,
    CreatedBefore,
    Key,
    Limit,
    ListOrder,
    Url,
    json_option,
)
from app.clock import new_id
from app.domain.slices import Order
from app.domain.tickets.decisions import Action
from app.domain.tickets.tickets import TicketSort

_COLUMNS: Columns = {
    "TICKET": lambda ticket: ticket["id"],
    "KIND": lambda ticket: ticket["kind"],
    "STATUS": lambda ticket: ticket["status"],
    "OPENED": lambda ticket: moment(ticket["created_at"]),
    "AGENT": lambda ticket: ticket["agent_id"],
    "EXPIRES": lambda ticket: moment(ticket["expires_at"]),
    "EFFECT": lambda ticket: ticket["tool_effect"] or "",
    "VOTES": lambda ticket: _votes(ticket),
    "CALL": lambda ticket: f"{ticket['tool_name']} {short(ticket['arguments'])}",
}
_SHOWN_CHOICES = 10
_USUAL_ORDERS = {TicketSort.CREATED: Order.DESC, TicketSort.EXPIRY: Order.ASC}


class ListedStatus(StrEnum):
    """A status of tickets, or any of them."""

    OPEN = "open"
    DECIDED = "decided"
    EXPIRED = "expired"
    VOID = "void"
    ANY = "any"


def list_tickets(
    status: Annotated[
        ListedStatus, typer.Option(help="Only tickets with this status.")
    ] = ListedStatus.OPEN,
    kind: Annotated[
        str | None, typer.Option(help="Only tickets of this kind, such as approval.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only tickets of this agent.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only tickets about this tool.")] = None,
    run: Annotated[str | None, typer.Option(help="Only tickets of this run.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only tickets of this thread.")] = None,
    thread_key: Annotated[
        str | None, typer.Option(help="Only tickets of the thread with this key.")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Only tickets of this run and of the runs below it.")
    ] = None,
    mine: Annotated[
        bool, typer.Option("--mine", help="Only open tickets that you may decide.")
    ] = False,
    expires_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only tickets that expire before this time.")
    ] = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    order: ListOrder = None,
    sort: Annotated[
        TicketSort,
        typer.Option(
            help="What the order is about. With expires_at, those that expire first come first."
        ),
    ] = TicketSort.CREATED,
    count: Annotated[
        bool, typer.Option("--count", help="Print how many there are; 1000+ if there are more.")
    ] = False,
    as_json: AsJson = False,
    limit: Limit = 20,
    url: Url = None,
    key: Key = None,
) -> None:
    """List tickets of all runs; by default the open ones."""
    filters = {
        "status": None if status is ListedStatus.ANY else status.value,
        "kind": kind,
        "agent_id": agent,
        "tool_name": tool,
        "run_id": run,
        "thread_id": thread,
        "thread_key": thread_key,
        "root_run_id": root,
        "assignee": "me" if mine else None,
        "expires_before": expires_before,
        "created_after": created_after,
        "created_before": created_before,
    }
    with command_client(*environment.server_settings(url, key)) as server:
        if count:
            _write_count(server.get("/v1/tickets/count", **filters), as_json=as_json)
            return
        filters |= {"sort": sort.value, "order": order or _USUAL_ORDERS[sort]}
        write_list(server.pages("/v1/tickets", filters), _COLUMNS, as_json=as_json, limit=limit)


def _votes(ticket: Item) -> str:
    """`1/2` if one of two people has agreed; empty if one person is enough."""
    quorum = (ticket["approvers"] or {}).get("quorum", 1)
    return f"{len(ticket['votes'])}/{quorum}" if quorum > 1 else ""


def _write_count(found: Body, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found))
    else:
        typer.echo(f"{found['count']}{'' if found['is_exact'] else '+'}")


def decide(
    action: Annotated[Action, typer.Argument(help="What you decide.")],
    ticket: Annotated[
        str | None,
        typer.Argument(
            metavar="TICKET",
            help="The ticket's id, as `holdfast tickets` lists it. Without it, the only open ticket.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="The reason. With reject, the model reads it.")
    ] = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="With edit: the new arguments.")
    ] = None,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="With respond: the call's result.")
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Decide a ticket. Its run continues when all its tickets are decided.

    Exit codes: 0 it is decided; 1 no ticket is open, or several are and you named none; 7 the server can't be
    reached or refused.
    """
    decision: dict[str, Any] = {"action": action.value}
    if reason is not None:
        decision["reason"] = reason
    if arguments is not None:
        decision["arguments"] = json_option("--arguments", arguments)
    if result is not None:
        decision["result"] = json_option("--result", result)
    with command_client(*environment.server_settings(url, key)) as server:
        found = _only_open_ticket(server) if ticket is None else server.ticket(ticket)
        quoted = {"ticket_id": found["id"], "args_digest": found["args_digest"]}
        answer = server.decide(found["run_id"], quoted | decision)
    call = f"{found['tool_name']} {short(found['arguments'])}"
    for decided in answer["results"]:
        typer.echo(f"{found['id']}: {decided['action']} {decided['status']} ({call})")
    for still_open in answer["open_tickets"]:
        typer.echo(f"{still_open['id']}: still open ({still_open['tool_name']})")
    typer.echo(f"Follow the run with: holdfast tail {found['run_id']}", err=True)


def _only_open_ticket(server: ApiClient) -> Body:
    found = list(islice(server.pages("/v1/tickets", {"status": "open"}), _SHOWN_CHOICES))
    if len(found) == 1:
        return found[0]
    if not found:
        exit_with("No ticket is open.", ExitCode.FAILED)
    write_table(found, _COLUMNS)
    exit_with("Several tickets are open, so name the one that you decide.", ExitCode.FAILED)


def signal(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the event.")],
    event_key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the event.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="Payload of the event.")] = "null",
    id: Annotated[
        str | None,
        typer.Option(
            help="Id of the signal. The same id is delivered once.", show_default="a new one"
        ),
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Send a signal to the tickets that wait for this event."""
    body = {
        "signal_id": id or new_id(),
        "name": name,
        "key": event_key,
        "payload": json_option("JSON", payload),
    }
    with command_client(*environment.server_settings(url, key)) as server:
        sent = server.signal(body)
    typer.echo(f"{sent['id']}: {sent['status']}")
    for ticket in sent["tickets"]:
        typer.echo(f"run {ticket['run_id']}: {ticket['outcome']}")
