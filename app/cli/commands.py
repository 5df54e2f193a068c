"""The commands and their options."""

import asyncio
from typing import Annotated, Any

import typer

from app import telemetry
from app.cli import conversation, doctor, environment, keys, serving
from app.cli.endings import give_up
from app.cli.process import run as run_process
from app.cli.server import Server, parse_json
from app.domain.decisions import Action
from app.domain.principals import Scope
from app.settings import Settings
from app.storage import migrations

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="LLM agents as a service.",
)

Url = Annotated[str, typer.Option(envvar="HOLDFAST_URL", help="The server.")]
Key = Annotated[
    str | None, typer.Option(envvar="HOLDFAST_API_KEY", help="Your API key.", show_default=False)
]
DEFAULT_URL = "http://127.0.0.1:8000"


def _settings() -> Settings:
    settings = environment.read_settings()
    telemetry.set_up_logging(settings.log_level, as_json=settings.log_json)
    return settings


@app.command()
def serve() -> None:
    """Serve HTTP, and execute runs unless HOLDFAST_ROLE is `api`."""
    settings = _settings()
    run_process(lambda stop: serving.serve(settings, stop))


@app.command()
def worker() -> None:
    """Execute runs without serving HTTP."""
    settings = _settings()
    run_process(lambda stop: serving.work(settings, stop))


@app.command()
def migrate() -> None:
    """Bring the database of DATABASE_URL to this version's schema."""
    url = _settings().database_url
    if url is None:
        give_up("Set DATABASE_URL: the embedded database is migrated whenever it is started.")
    run_process(lambda _: migrations.upgrade(url))
    typer.echo(f"The database is at revision {migrations.newest_revision()}.")


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="What you say to the agent.")],
    agent: Annotated[str, typer.Option(help="Which agent.")] = "demo",
    thread: Annotated[str | None, typer.Option(help="A thread to continue.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve every call.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Start a run, stream it to the terminal, and ask you about the calls that need a person."""
    asyncio.run(conversation.converse(Server(url, key), agent, prompt, thread, approve_all=yes))


@app.command()
def tail(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    json: Annotated[bool, typer.Option("--json", help="One event a line, as JSON.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Follow a run's events from its beginning until it is done."""
    asyncio.run(conversation.tail(Server(url, key), run_id, as_json=json))


@app.command()
def decide(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    ticket: Annotated[str, typer.Argument(metavar="TICKET", help="ticket_id, id or call id.")],
    action: Annotated[Action, typer.Argument()],
    reason: Annotated[str | None, typer.Option(help="Why; the model reads it on reject.")] = None,
    arguments: Annotated[str | None, typer.Option(help="With edit: JSON object.")] = None,
    result: Annotated[str | None, typer.Option(help="With respond: JSON.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Answer a ticket of a run."""
    decision: dict[str, Any] = {"ticket_id": ticket, "action": action.value}
    if reason is not None:
        decision["reason"] = reason
    if arguments is not None:
        decision["arguments"] = parse_json("--arguments", arguments)
    if result is not None:
        decision["result"] = parse_json("--result", result)
    asyncio.run(conversation.decide(Server(url, key), run_id, decision))


@app.command(name="doctor")
def examine(url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Check settings, agents, models, database and server, and say what to do."""
    asyncio.run(doctor.examine(url, key))


@app.command()
def settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a table.")] = False,
) -> None:
    """List everything that can be set, with its default."""
    typer.echo(environment.as_markdown() if markdown else environment.as_text())


key_commands = typer.Typer(no_args_is_help=True, help="API keys.")
app.add_typer(key_commands, name="keys")


@key_commands.command()
def new(
    subject: Annotated[str, typer.Option(help="Whose key it is, as audits will name them.")],
    scope: Annotated[list[Scope], typer.Option(help="What it may do; repeat for several.")],
    tenant: Annotated[str, typer.Option(help="Whose data it sees.")] = "default",
) -> None:
    """Make a key: shown once on stderr, with its entry for the keys file on stdout."""
    keys.make(subject, tenant, scope)


@key_commands.command()
def hash() -> None:
    """Read a key from stdin, print its SHA-256 for the keys file."""
    typer.echo(keys.digest(typer.get_text_stream("stdin").read().strip()))
