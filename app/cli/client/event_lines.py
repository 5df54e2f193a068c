"""A run's events for a person: one line per event, and the text of the model as it comes."""

from collections.abc import Iterator

import typer

from app.cli.client.api_client import Event
from app.cli.client.output import visible
from app.cli.client.table import short

_MAX_LENGTH = 200
_ENVELOPE = frozenset({"seq", "ts", "thread_id", "run_id", "step", "event_type", "identity"})
_TEXTS = frozenset({"text_delta", "reasoning_delta", "tool_call_stream_delta"})
_IN_ANOTHER_EVENT = frozenset({"tool_call_delta", "activity_delta"})
"""Pieces of a text that a later event contains completely."""
_COLORS = {
    "run_start": typer.colors.GREEN,
    "run_finish": typer.colors.GREEN,
    "tool_call_ready": typer.colors.BLUE,
    "tool_call_done": typer.colors.BLUE,
    "tool_call_resumed": typer.colors.BLUE,
    "ticket_opened": typer.colors.YELLOW,
    "ticket_decided": typer.colors.YELLOW,
    "ticket_expired": typer.colors.YELLOW,
    "stream_reset": typer.colors.RED,
    "inference_retry": typer.colors.RED,
    "cancel_requested": typer.colors.RED,
}


class EventLines:
    """Writes to stdout. Colours and their codes are left out unless it is a terminal."""

    def __init__(self) -> None:
        self._open_text = ""

    def write(self, event: Event) -> None:
        kind = event["event_type"]
        if kind in _TEXTS:
            self._write_text(kind, event["delta"])
        elif kind not in _IN_ANOTHER_EVENT:
            self.end_text()
            time = typer.style(event.get("ts", "")[11:19], dim=True)
            name = typer.style(kind, fg=_COLORS.get(kind))
            gap = " " * max(1, 19 - len(kind))
            typer.echo(f"{time:8} {name}{gap}{visible(summary(event))}".rstrip())

    def end_text(self) -> None:
        """End the line of the text, if one is open."""
        if self._open_text:
            typer.echo()
            self._open_text = ""

    def _write_text(self, kind: str, text: str) -> None:
        if self._open_text != kind:
            self.end_text()
        typer.echo(typer.style(visible(text), dim=kind != "text_delta"), nl=False)
        self._open_text = "" if text.endswith("\n") else kind


def summary(event: Event) -> str:
    """What a person wants to know of an event, in one line."""
    text = " ".join(part for part in _parts(event) if part).replace("\n", " ")
    return short(text, _MAX_LENGTH)


def _parts(event: Event) -> Iterator[str]:
    match event:
        case {"event_type": "tool_call_ready", "name": name, "arguments": arguments}:
            yield f"{name} {short(arguments, _MAX_LENGTH)}"
        case {"event_type": "tool_call_done" | "tool_call_resumed", "result": result}:
            word = result.get("outcome", result["status"])
            yield f"{word}:" if result.get("text") else word
            yield result.get("text", "")
        case {"event_type": "ticket_opened", "ticket": ticket}:
            yield f"{ticket['id']} ({ticket['kind']})"
            yield f"{ticket.get('tool_name', '')} {short(ticket.get('arguments'), _MAX_LENGTH)}"
        case {"event_type": "run_finish", "termination": termination}:
            yield str(termination["type"])
            yield str(termination.get("detail") or termination.get("code") or "")
        case {"event_type": "message_done", "message": message}:
            yield f"message {message.get('seq', '')}"
        case _:
            for name, value in event.items():
                if name not in _ENVELOPE:
                    yield f"{name}={short(value, _MAX_LENGTH)}"
