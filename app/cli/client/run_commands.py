"""Commands about one run: start, follow, explain, cancel, pause, resume and retry it."""

import json
from functools import partial
from typing import Annotated, Any

import typer

from app.cli import environment
from app.cli.client.api_client import ApiClient, command_client
from app.cli.client.event_lines import EventLines
from app.cli.client.explanation import lines_of
from app.cli.client.interactive_run import run_interactively
from app.cli.client.output import Output
from app.cli.client.ticket_prompt import approving, ask
from app.cli.exit_codes import ExitCode, exit_with
from app.cli.options import AsJson, Key, Run, Url
from app.clock import new_id

_MAX_WAIT_SECONDS = 60


def run(
    prompt: Annotated[str, typer.Argument(help="Message to the agent.")],
    agent: Annotated[
        str | None,
        typer.Option(
            help="Id of the agent.",
            show_default="the server's first agent; with --thread, the agent that last ran there",
        ),
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Id of the thread to continue.")] = None,
    thread_key: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Your own name of the thread: continue it, or create it."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve all calls without asking.")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Start a run, show its output, and ask for decisions about its tickets and those of its children.

    Exit codes: 0 the run succeeded, 1 it failed, 3 a limit stopped it, 4 it was blocked, 5 cancelled, 6 it
    waits for a person: a ticket was left open, or the run is paused; 7 the server can't be reached or refused;
    130 a second Ctrl-C. Other waits, such as for a delegate or an event, continue.
    """
    if thread is not None and thread_key is not None:
        raise typer.BadParameter("can't be combined with --thread.", param_hint="--thread-key")
    request: dict[str, Any] = {
        "run_id": new_id(),
        "messages": [{"role": "user", "content": prompt}],
    }
    screen = Output()
    by_person = partial(ask, screen=screen)
    with command_client(*environment.server_settings(url, key)) as server:
        if thread is not None:
            request["thread_id"] = thread
        if thread_key is not None:
            request["thread_key"] = thread_key
        if agent is not None or not (thread or _has_run(server, thread_key)):
            request["agent_id"] = agent or _first_agent(server)
        answer = approving(by_person) if yes else by_person
        raise SystemExit(run_interactively(server, screen, request, answer))


def _has_run(server: ApiClient, thread_key: str | None) -> bool:
    """Whether the thread with this key has an agent that the server can choose again."""
    if thread_key is None:
        return False
    found = next(server.pages("/v1/threads", {"key": thread_key}), None)
    return found is not None and found["latest_run_id"] is not None


def _first_agent(server: ApiClient) -> str:
    agent = next(server.pages("/v1/agents", {}), None)
    if agent is None:
        exit_with("The server has no agents.", ExitCode.REFUSED)
    return str(agent["id"])


def tail(run_id: Run, as_json: AsJson = False, url: Url = None, key: Key = None) -> None:
    """Print a run's events from the first one until it is done."""
    with command_client(*environment.server_settings(url, key)) as server:
        server.run(run_id)
        lines = EventLines()

        def on_cut(why: str) -> None:
            lines.end_text()
            typer.echo(f"[{why}]", err=True)

        for event in server.events(run_id, 0, until_done=True, on_cut=on_cut):
            if as_json:
                typer.echo(json.dumps(event))
            else:
                lines.write(event)
        lines.end_text()


def explain(
    run_id: Run,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Say why a run is where it is, and what to do to continue it."""
    with command_client(*environment.server_settings(url, key)) as server:
        explanation = server.get(f"/v1/runs/{run_id}/explain")
    if as_json:
        typer.echo(json.dumps(explanation))
    else:
        for line in lines_of(explanation):
            typer.echo(line)


def cancel(
    run_id: Run,
    reason: Annotated[str | None, typer.Option(help="The reason, for the audit.")] = None,
    wait: Annotated[
        int,
        typer.Option(
            min=0, max=_MAX_WAIT_SECONDS, help="Maximum seconds to wait until the run is done."
        ),
    ] = 30,
    url: Url = None,
    key: Key = None,
) -> None:
    """Cancel a run in any status, and wait until it is done.

    Exit codes: 0 the run is done; 6 the cancel is stored, and the run isn't done yet; 7 the server can't be
    reached or refused.
    """
    with command_client(*environment.server_settings(url, key)) as server:
        found = server.cancel(run_id, reason, wait=wait)
    if found["status"] == "done":
        typer.echo(f"{run_id}: {found['outcome']}")
    else:
        typer.echo(f"{run_id}: cancel requested, still {found['status']}")
        raise SystemExit(ExitCode.WAITING)


def pause(
    run_id: Run,
    reason: Annotated[
        str | None, typer.Option(help="The reason, which the run's record shows.")
    ] = None,
    wait: Annotated[
        int,
        typer.Option(
            min=0, max=_MAX_WAIT_SECONDS, help="Maximum seconds to wait for the end of its step."
        ),
    ] = 30,
    url: Url = None,
    key: Key = None,
) -> None:
    """Suspend a run until it is resumed, and wait until no worker executes it.

    Exit codes: 0 the run is paused, or its last step ended it; 6 the pause is stored, and the run's step still
    executes; 7 the server can't be reached or refused.
    """
    with command_client(*environment.server_settings(url, key)) as server:
        found = server.pause(run_id, reason, wait=wait)
    if found["status"] == "running":
        typer.echo(f"{run_id}: pause requested, still running")
        raise SystemExit(ExitCode.WAITING)
    typer.echo(f"{run_id}: {found['outcome'] or 'paused'}")


def resume(run_id: Run, url: Url = None, key: Key = None) -> None:
    """Resume a paused run. Prints its status."""
    with command_client(*environment.server_settings(url, key)) as server:
        found = server.resume(run_id)
    typer.echo(f"{run_id}: {found['status']}")
    typer.echo(f"Follow it with: holdfast tail {run_id}", err=True)


def retry(
    run_id: Run,
    current: Annotated[
        bool,
        typer.Option(
            "--current",
            help="With the newest version of the agent.",
            show_default="the same version",
        ),
    ] = False,
    url: Url = None,
    key: Key = None,
) -> None:
    """Start a new run that continues from the last checkpoint of a failed one. Prints its id."""
    body = {"agent_version": "current" if current else "same"}
    with command_client(*environment.server_settings(url, key)) as server:
        new = server.retry(run_id, body)
    typer.echo(new["id"])
    typer.echo(f"Follow it with: holdfast tail {new['id']}", err=True)
