"""The terminal: the agent's text goes to stdout, everything else to stderr."""

import sys
import unicodedata
from typing import Any

import typer

from app.cli.client.api_client import Event
from app.domain.json_values import compact

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_WAITS = {
    "child_runs": "waits for the agents that it called",
    "background_tasks": "waits for its background tasks",
    "external_event": "waits for an event",
}


def visible(text: str) -> str:
    """The text with control and bidirectional characters escaped, so that it can't control the terminal."""
    return "".join(
        char.encode("unicode_escape").decode() if _is_control(char) else char for char in text
    )


def _is_control(char: str) -> bool:
    return char in _BIDI or (unicodedata.category(char) == "Cc" and char not in "\n\t")


class Output:
    def __init__(self) -> None:
        self._is_mid_line = False
        self._is_piped = not sys.stdout.isatty()

    def write_line(self, text: str) -> None:
        """Write the agent's text: escaped to a terminal, unchanged to a pipe."""
        typer.echo(text if self._is_piped else visible(text), nl=False)
        self._is_mid_line = not text.endswith("\n")

    def write_status(self, line: str) -> None:
        """Write a line about the run to stderr."""
        self.end_line()
        typer.echo(visible(line), err=True)

    def prompt(self, text: str) -> None:
        self.end_line()
        typer.echo(text, nl=False, err=True)

    def end_line(self) -> None:
        if self._is_mid_line:
            typer.echo()
            self._is_mid_line = False

    def show(self, event: Event) -> None:
        """Show an event, if it is of interest to a user."""
        match event["event_type"]:
            case "text_delta":
                self.write_line(event["delta"])
            case "stream_reset":
                self.write_status(f"[{event['reason']}: the answer starts again]")
            case "tool_call_ready":
                self.write_status(f"→ {event['name']} {_short(event['arguments'])}")
            case "tool_call_done" | "tool_call_resumed":
                if event["result"]["status"] == "done":
                    self.write_status(f"← {_short(event['result']['text'])}")
            case "ticket_decided":
                self.write_status(f"[{event['action']}, decided by {event['decided_by']}]")
            case "ticket_opened" if (awaited := event["ticket"].get("event")) is not None:
                name, key = awaited["name"], awaited["key"]
                self.write_status(f"[an event is awaited: holdfast signal {name} {key} JSON]")
            case "run_finish":
                self.end_line()
                waiting = event.get("waiting")
                if waiting is not None and not waiting["needs_decision"]:
                    self._show_wait(waiting)

    def _show_wait(self, waiting: dict[str, Any]) -> None:
        """Show a wait that ends without a person."""
        reason = waiting["reason"]
        self.write_status(f"[{waiting.get('detail') or _WAITS.get(reason, f'waits: {reason}')}]")
        if (until := waiting.get("until")) is not None:
            self.write_status(f"[the run resumes at {until}]")


def _short(value: Any, max_length: int = 500) -> str:
    text = value if isinstance(value, str) else compact(value)
    return text if len(text) <= max_length else f"{text[:max_length]}… ({len(text)} characters)"
