"""The terminal: what the agent says goes to stdout, everything about it to stderr."""

import sys
import unicodedata
from typing import Any

import typer

from app.cli.client.api_client import Event
from app.domain.json_values import compact

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    """Text that can't move the cursor, or show one thing as another: such characters are spelled out."""
    return "".join(
        char.encode("unicode_escape").decode() if _steers(char) else char for char in text
    )


def _steers(char: str) -> bool:
    return char in _BIDI or (unicodedata.category(char) == "Cc" and char not in "\n\t")


class Output:
    def __init__(self) -> None:
        self._is_mid_line = False
        self._is_piped = not sys.stdout.isatty()

    def write_line(self, text: str) -> None:
        """What the agent says: for a terminal made harmless, for a program as it is."""
        typer.echo(text if self._is_piped else visible(text), nl=False)
        self._is_mid_line = not text.endswith("\n")

    def write_note(self, line: str) -> None:
        """Something about the run, on a line of its own."""
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
        """What a person wants to see of an event, if anything."""
        match event["event_type"]:
            case "text_delta":
                self.write_line(event["delta"])
            case "stream_reset":
                self.write_note(f"[{event['reason']}: this answer begins again]")
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


def _short(value: Any, most: int = 500) -> str:
    text = value if isinstance(value, str) else compact(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"
