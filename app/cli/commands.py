"""The command line: which commands there are, and in which group `holdfast -h` shows them."""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from app.cli.client import (
    agent_commands,
    memory_commands,
    run_commands,
    run_list,
    thread_list,
    ticket_commands,
    workload,
)
from app.cli.server import commands as server_commands
from app.cli.setup import commands as setup_commands
from app.cli.setup import mcp_commands
from app.distribution import VERSION

_COMMANDS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Runs, on a server": {
        "run": run_commands.run,
        "runs": run_list.list_runs,
        "threads": thread_list.list_threads,
        "tail": run_commands.tail,
        "explain": run_commands.explain,
        "cancel": run_commands.cancel,
        "pause": run_commands.pause,
        "resume": run_commands.resume,
        "retry": run_commands.retry,
        "tickets": ticket_commands.list_tickets,
        "decide": ticket_commands.decide,
        "signal": ticket_commands.signal,
        "agents": agent_commands.list_agents,
        "workers": workload.list_workers,
        "stats": workload.show_statistics,
    },
    "Servers and workers": {
        "serve": server_commands.serve,
        "dev": server_commands.develop,
        "worker": server_commands.worker,
        "migrate": server_commands.migrate,
    },
    "Set up and check": {
        "init": setup_commands.init,
        "install": setup_commands.install,
        "doctor": setup_commands.doctor,
        "backup": setup_commands.backup,
        "restore": setup_commands.restore,
        "settings": setup_commands.settings,
    },
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """LLM agents as a service."""


for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)

_keys = typer.Typer(no_args_is_help=True, help="API keys.")
_keys.command("new")(setup_commands.create_key)
_keys.command("hash")(setup_commands.hash_key)
app.add_typer(_keys, name="keys", rich_help_panel="Set up and check")

_memory = typer.Typer(no_args_is_help=True, help="What agents keep across runs.")
_memory.command("list")(memory_commands.list_memories)
_memory.command("show")(memory_commands.show)
_memory.command("forget")(memory_commands.forget)
_memory.command("export")(memory_commands.export)
app.add_typer(_memory, name="memory", rich_help_panel="Runs, on a server")

_mcp = typer.Typer(no_args_is_help=True, help="MCP servers.")
_mcp.command("list")(mcp_commands.list_servers)
_mcp.command("call")(mcp_commands.call)
app.add_typer(_mcp, name="mcp", rich_help_panel="Set up and check")
