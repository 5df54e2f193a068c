"""The terminal: the agent's text goes to stdout, everything else to stderr."""

import sys
import unicodedata
from typing import Any

import typer

from app.cli.client.api_client import Event
from app.domain.json_values import compact

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


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

    def write_note(self, line: str) -> None:
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
                self.write_note(f"[{event['reason']}: the answer starts again]")
            case "tool_call_ready":
                self.write_note(f"→ {event['name']} {_short(event['arguments'])}")
            case "tool_call_done" if event["outcome"] != "suspended":
                result = event["result"]
                self.write_note(f"← {_short(result.get('message') or result.get('data'))}")
            case "tool_call_resumed":
                self.write_note(f"← {_short(event['result'])}")
            case "ticket_decided":
                self.write_note(f"[{event['action']}, decided by {event['decided_by']}]")
            case "run_finish":
                self.end_line()
                if (until := (event.get("waiting") or {}).get("until")) is not None:
                    self.write_note(f"[{event['waiting']['detail']}]")
                    self.write_note(f"[the run resumes at {until}]")


def _short(value: Any, max_length: int = 500) -> str:
    text = value if isinstance(value, str) else compact(value)
    return text if len(text) <= max_length else f"{text[:max_length]}… ({len(text)} characters)"
