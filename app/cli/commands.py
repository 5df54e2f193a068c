"""The commands and their options.

What serves is imported by the commands that serve: asking a server takes a tenth of the time.
"""

import json
from functools import partial
from typing import Annotated, Any

import typer

from app.cli import environment, keys
from app.cli.client import tail as tailing
from app.cli.client.api_client import ticket_client
from app.cli.client.interactive_run import run_interactively
from app.cli.client.output import Output
from app.cli.client.ticket_prompt import approving, ask
from app.clock import new_id
from app.domain.principals import Scope
from app.domain.tickets.decisions import Action

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="LLM agents as a service.",
)

Url = Annotated[
    str | None,
    typer.Option(help="The server. [default: HOLDFAST_URL, or this machine's]", show_default=False),
]
Key = Annotated[
    str | None, typer.Option(help="Your API key. [default: HOLDFAST_API_KEY]", show_default=False)
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]


@app.command()
def serve() -> None:
    """Serve HTTP, and execute runs unless HOLDFAST_ROLE is `api`."""
    from app.cli.server import event_loop, serving  # noqa: PLC0415  slow, see above

    event_loop.run(partial(serving.serve, event_loop.prepare()))


@app.command()
def worker() -> None:
    """Execute runs without serving HTTP."""
    from app.cli.server import event_loop, serving  # noqa: PLC0415  slow, see above

    event_loop.run(partial(serving.work, event_loop.prepare()))


@app.command()
def migrate() -> None:
    """Bring the database of DATABASE_URL to this version's schema."""
    from app.cli.server import event_loop, serving  # noqa: PLC0415  slow, see above

    event_loop.run(partial(serving.migrate, event_loop.prepare()))


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="What you say to the agent.")],
    agent: Annotated[str, typer.Option(help="Which agent.")] = "demo",
    thread: Annotated[str | None, typer.Option(help="The id of a thread to continue.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve all that asks for approval.")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Start a run, stream it to the terminal, and ask you about calls that need a person.

    Ends with 0 when the run succeeded, 1 failed, 3 was stopped by a limit, 4 blocked, 5 cancelled, 6 waits
    for an answer; 7 when there is no server or it refused; 130 when you left by a second Ctrl-C.
    """
    request: dict[str, Any] = {
        "run_id": new_id(),
        "agent_id": agent,
        "messages": [{"role": "user", "content": prompt}],
    }
    if thread is not None:
        request["thread_id"] = thread
    screen = Output()
    by_person = partial(ask, screen=screen)
    with ticket_client(*environment.server_settings(url, key)) as server:
        answer = approving(by_person) if yes else by_person
        raise SystemExit(run_interactively(server, screen, request, answer))


@app.command()
def tail(
    run_id: Run,
    as_json: Annotated[bool, typer.Option("--json", help="One event a line, as JSON.")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Follow a run's events from its beginning until it is done."""
    with ticket_client(*environment.server_settings(url, key)) as server:
        tailing.tail(server, run_id, as_json=as_json)


@app.command()
def decide(
    run_id: Run,
    ticket: Annotated[
        str, typer.Argument(metavar="TICKET", help="Its ticket_id or id, or its call's id.")
    ],
    action: Annotated[Action, typer.Argument()],
    reason: Annotated[str | None, typer.Option(help="Why; the model reads it on reject.")] = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="With edit: what the tool gets instead.")
    ] = None,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="With respond: the call's result.")
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Answer a ticket of a run."""
    decision: dict[str, Any] = {"ticket_id": ticket, "action": action.value}
    if reason is not None:
        decision["reason"] = reason
    if arguments is not None:
        decision["arguments"] = _json("--arguments", arguments)
    if result is not None:
        decision["result"] = _json("--result", result)
    with ticket_client(*environment.server_settings(url, key)) as server:
        answer = server.decide(run_id, decision)
    for decided in answer["results"]:
        typer.echo(f"{decided['ticket_id']}: {decided['action']} {decided['status']}")
    for still_open in answer["open_tickets"]:
        typer.echo(f"{still_open['ticket_id']}: still open ({still_open['tool_name']})")


@app.command()
def signal(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.")],
    event_key: Annotated[str, typer.Argument(metavar="KEY", help="Which one is meant.")],
    payload: Annotated[
        str, typer.Argument(metavar="JSON", help="What the waiting call gets.")
    ] = "null",
    id: Annotated[
        str | None, typer.Option(help="Its id: the same again is delivered once. [default: new]")
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Send an event to the calls that wait for it."""
    body = {
        "id": id or new_id(),
        "name": name,
        "key": event_key,
        "payload": _json("JSON", payload),
    }
    with ticket_client(*environment.server_settings(url, key)) as server:
        sent = server.signal(body)
    typer.echo(f"{sent['id']}: {sent['status']}")
    for ticket in sent["tickets"]:
        typer.echo(f"run {ticket['run_id']}: {ticket['outcome']}")


@app.command(name="doctor")
def run_doctor(url: Url = None, key: Key = None) -> None:
    """Check settings, agents, models, database and server, and say what to do."""
    from app.cli import doctor  # noqa: PLC0415  slow, see above
    from app.cli.server import event_loop  # noqa: PLC0415  slow, see above

    event_loop.run(partial(doctor.run_checks, event_loop.prepare(least_level="error"), url, key))


@app.command()
def settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a table.")] = False,
) -> None:
    """List everything that can be set, with its default."""
    typer.echo(environment.as_markdown() if markdown else environment.as_text())


key_commands = typer.Typer(no_args_is_help=True, help="API keys.")
app.add_typer(key_commands, name="keys")


@key_commands.command(name="new")
def create_key(
    subject: Annotated[str, typer.Option(help="Whose key it is, as audits will name them.")],
    scope: Annotated[list[Scope], typer.Option(help="What it may do; repeat for several.")],
    tenant: Annotated[str, typer.Option(help="Whose data it sees.")] = "default",
) -> None:
    """Make a key: shown once on stderr, with its entry for the keys file on stdout."""
    keys.new_key(subject, tenant, scope)


@key_commands.command(name="hash")
def hash_key() -> None:
    """Read a key from stdin, print its SHA-256 for the keys file."""
    typer.echo(keys.digest(typer.get_text_stream("stdin").read().strip()))


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"isn't valid JSON: {error}.", param_hint=option) from None
