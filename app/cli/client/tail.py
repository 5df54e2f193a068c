"""A run's events as lines of text or JSON."""

import json

import typer

from app.cli.client.api_client import ApiClient, Event
from app.cli.client.output import visible
from app.domain.json_values import compact

_SHOWN_SEPARATELY = frozenset(
    {"seq", "ts", "thread_id", "run_id", "step", "event_type", "identity"}
)
_MAX_LENGTH = 200


def tail(server: ApiClient, run_id: str, *, as_json: bool) -> None:
    """Print all events from the first one until the run is done."""
    server.run(run_id)
    for event in server.events(
        run_id, 0, until_done=True, on_cut=lambda why: typer.echo(f"[{why}]", err=True)
    ):
        typer.echo(json.dumps(event) if as_json else line(event))


def line(event: Event) -> str:
    """Number, time, step and type of an event, and its other fields, truncated."""
    rest = {name: value for name, value in event.items() if name not in _SHOWN_SEPARATELY}
    shown = " ".join(f"{name}={compact(value)}" for name, value in rest.items())
    if len(shown) > _MAX_LENGTH:
        shown = f"{shown[:_MAX_LENGTH]}…"
    number, time = event.get("seq", ""), event.get("ts", "")[11:23]
    step = "" if event.get("step") is None else f"[{event['step']}]"
    return visible(f"{number:>5} {time} {step:>4} {event['event_type']:<20} {shown}").rstrip()
