"""A run's events as lines: for people, or as JSON for programs."""

import json

import typer

from app.cli.client.api_client import ApiClient, Event
from app.cli.client.output import visible
from app.domain.json_values import compact

_TOLD_OTHERWISE = frozenset({"seq", "ts", "thread_id", "run_id", "step", "event_type", "identity"})
_MOST = 200


def tail(server: ApiClient, run_id: str, *, as_json: bool) -> None:
    """All of them from the first on, until the run is done."""
    server.run(run_id)
    for event in server.events(
        run_id, 0, until_done=True, on_cut=lambda why: typer.echo(f"[{why}]", err=True)
    ):
        typer.echo(json.dumps(event) if as_json else line(event))


def line(event: Event) -> str:
    """Number, time, step, type, and the beginning of the rest."""
    rest = {name: value for name, value in event.items() if name not in _TOLD_OTHERWISE}
    told = " ".join(f"{name}={compact(value)}" for name, value in rest.items())
    if len(told) > _MOST:
        told = f"{told[:_MOST]}…"
    number, time = event.get("seq", ""), event.get("ts", "")[11:23]
    step = "" if event.get("step") is None else f"[{event['step']}]"
    return visible(f"{number:>5} {time} {step:>4} {event['event_type']:<20} {told}").rstrip()
