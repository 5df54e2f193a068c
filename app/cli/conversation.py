"""A run in a terminal: what it says as it comes, and questions where it needs a person."""

import asyncio
import json
import signal
import sys
from typing import Any

import typer

from app.cli.endings import ExitCode, give_up
from app.cli.server import Server, parse_json

_CODES = {
    "natural_end": ExitCode.SUCCEEDED,
    "behavior_requested": ExitCode.SUCCEEDED,
    "stopped": ExitCode.BUDGET_EXCEEDED,
    "blocked": ExitCode.BLOCKED,
    "cancelled": ExitCode.CANCELLED,
    "error": ExitCode.FAILED,
}


async def converse(
    server: Server, agent: str, prompt: str, thread: str | None, *, approve_all: bool
) -> None:
    """Start a run and stay with it until it is done; leave with a code that says how it ended."""
    async with server:
        body: dict[str, Any] = {
            "agent_id": agent,
            "messages": [{"role": "user", "content": prompt}],
        }
        if thread is not None:
            body["thread_id"] = thread
        run = await server.post("/v1/runs", body)
        run_id = run["run_id"]
        typer.echo(f"run {run_id} on thread {run['thread_id']}", err=True)
        wishes = _cancel_on_interrupt(server, run_id)
        after = 0
        while True:
            finish = None
            async for event in server.events(run_id, after):
                after = event.get("seq", after)
                _show(event)
                if event["event_type"] == "run_finish":
                    finish = event
            if finish is None:
                give_up("The stream ended before the run did; look with `holdfast tail`.")
            if finish["termination"]["type"] != "suspended":
                _leave(finish)
            if not await _answer_all(server, run_id, finish["waiting"], approve_all, wishes):
                typer.echo(
                    f"The run waits. Answer later with `holdfast decide {run_id} TICKET ACTION`.",
                    err=True,
                )
                raise SystemExit(ExitCode.WAITING)


async def tail(server: Server, run_id: str, *, as_json: bool) -> None:
    async with server:
        async for event in server.events(run_id, until_done=True):
            typer.echo(json.dumps(event) if as_json else _line(event))


async def decide(server: Server, run_id: str, decision: dict[str, Any]) -> None:
    async with server:
        answer = await server.post(f"/v1/runs/{run_id}/decisions", {"decisions": [decision]})
        for result in answer["results"]:
            typer.echo(f"{result['ticket_id']}: {result['action']} {result['status']}")
        for ticket in answer["open_tickets"]:
            typer.echo(f"{ticket['ticket_id']}: still open ({ticket['tool_name']})")


def _cancel_on_interrupt(server: Server, run_id: str) -> "asyncio.Event":
    """Ctrl-C asks the server to cancel; the run's end comes through the stream like any other."""
    wished = asyncio.Event()
    tasks: list[asyncio.Task[dict[str, Any]]] = []
    loop = asyncio.get_running_loop()

    def wish() -> None:
        if wished.is_set():
            raise SystemExit(ExitCode.INTERRUPTED)
        wished.set()
        typer.echo("\ncancelling … (Ctrl-C again to leave)", err=True)
        request = server.post(f"/v1/runs/{run_id}/cancel", {"reason": "Ctrl-C"})
        tasks.append(loop.create_task(request))

    loop.add_signal_handler(signal.SIGINT, wish)
    return wished


async def _answer_all(
    server: Server, run_id: str, waiting: dict[str, Any], approve_all: bool, wished: asyncio.Event
) -> bool:
    """Ask about each ticket; False when the person would rather leave."""
    decisions = []
    for ticket in waiting["tickets"]:
        typer.echo(f"\n{ticket['message']}", err=True)
        typer.echo(f"  {ticket['tool_name']} {json.dumps(ticket['arguments'])}", err=True)
        answer = {"action": "approve"} if approve_all else await _ask(ticket)
        if answer is None or wished.is_set():
            return False
        decisions.append(
            {"ticket_id": ticket["id"], "args_digest": ticket["args_digest"], **answer}
        )
    if not decisions:
        return False
    await server.post(f"/v1/runs/{run_id}/decisions", {"decisions": decisions})
    return True


async def _ask(ticket: dict[str, Any]) -> dict[str, Any] | None:
    actions = [action for action in ticket["allowed_actions"] if action != "cancel"]
    choices = " / ".join([*actions, "quit"])
    while True:
        chosen = (await _read(f"{choices}? ")).lower()
        if chosen in ("", "q", "quit"):
            return None
        action = next((action for action in actions if action.startswith(chosen)), None)
        match action:
            case "approve":
                return {"action": "approve"}
            case "reject":
                return {"action": "reject", "reason": await _read("reason? ") or None}
            case "edit":
                arguments = await _read("arguments as JSON? ")
                return {"action": "edit", "arguments": parse_json("arguments", arguments)}
            case "respond":
                return {"action": "respond", "result": _as_value(await _read("result? "))}
            case _:
                typer.echo(f"One of: {choices}", err=True)


async def _read(prompt: str) -> str:
    """A line of stdin, read off the loop; nothing when there is no more."""
    typer.echo(prompt, nl=False, err=True)
    line: str = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return line.strip()


def _as_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _show(event: dict[str, Any]) -> None:
    match event["event_type"]:
        case "text_delta":
            typer.echo(event["delta"], nl=False)
        case "stream_reset":
            typer.echo(f"\n[begun again: {event['reason']}]", err=True)
        case "tool_call_ready":
            typer.echo(f"\n→ {event['name']} {json.dumps(event['arguments'])}", err=True)
        case "tool_call_stream_delta":
            typer.echo(event["delta"], nl=False, err=True)
        case "tool_call_resumed":
            typer.echo(f"← {json.dumps(event['result'])}", err=True)
        case "tool_call_done" if event["outcome"] != "suspended":
            result = event["result"]
            typer.echo(f"← {result['message'] or json.dumps(result['data'])}", err=True)
        case "run_finish":
            typer.echo("")


def _line(event: dict[str, Any]) -> str:
    envelope = ("seq", "ts", "thread_id", "run_id", "step", "event_type")
    rest = {name: value for name, value in event.items() if name not in envelope}
    step = f" [{event['step']}]" if "step" in event else ""
    return f"{event.get('seq', '')}{step} {event['event_type']} {json.dumps(rest)}"


def _leave(finish: dict[str, Any]) -> None:
    termination = finish["termination"]
    code = _CODES.get(termination["type"], ExitCode.FAILED)
    if code is not ExitCode.SUCCEEDED:
        detail = termination.get("detail") or termination.get("code") or ""
        give_up(f"The run ended: {termination['type']} {detail}".rstrip(), code)
    raise SystemExit(ExitCode.SUCCEEDED)
