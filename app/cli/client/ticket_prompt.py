"""Asks the user at the terminal to decide a ticket."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from app.cli.client.output import Output
from app.domain.json_values import as_object, compact

Decision: TypeAlias = dict[str, Any]
Ask: TypeAlias = Callable[[dict[str, Any]], Decision | None]

_ORDER = {
    "approve": "approve",
    "edit": "edit",
    "reject": "reject",
    "respond": "respond",
    "cancel": "cancel (skip the call)",
}
_ABBREVIATIONS = {"a": "approve", "y": "approve", "yes": "approve", "e": "edit", "r": "reject"}
_ABBREVIATIONS |= {"n": "reject", "no": "reject", "s": "respond", "c": "cancel", "q": "quit"}


def ask(ticket: dict[str, Any], screen: Output) -> Decision | None:
    """The user's decision; None to leave the ticket open."""
    _show(ticket, screen)
    actions = [action for action in _ORDER if action in ticket["allowed_actions"]]
    choices = " / ".join([*(_ORDER[action] for action in actions), "quit"])
    try:
        while True:
            given = _line(screen, f"{choices} > ").lower()
            chosen = _ABBREVIATIONS.get(given, given)
            if chosen == "quit":
                return None
            if chosen in actions:
                return _complete(chosen, ticket, screen)
            screen.write_status("Type one of these words, or its first letter (s for respond).")
    except EOFError:
        return None


def approving(ask: Ask) -> Ask:
    """Approves each approval ticket once. Asks about other tickets, and after a refused decision."""
    approved: set[str] = set()

    def answer(ticket: dict[str, Any]) -> Decision | None:
        if ticket["kind"] != "approval" or ticket["id"] in approved:
            return ask(ticket)
        approved.add(ticket["id"])
        return {"action": "approve"}

    return answer


def _show(ticket: dict[str, Any], screen: Output) -> None:
    """Shows all arguments in full, because they are what the user approves."""
    screen.write_status(f"\n{ticket['message']}")
    arguments = as_object(ticket["arguments"])
    if arguments is None:
        arguments = {"arguments": ticket["arguments"]}
    screen.write_status(f"  {ticket['tool_name']}")
    for name, value in arguments.items():
        screen.write_status(f"    {name} = {compact(value)}")


def _complete(action: str, ticket: dict[str, Any], screen: Output) -> Decision:
    match action:
        case "edit":
            return {"action": action, "arguments": _arguments(screen)}
        case "respond":
            return {"action": action, "result": _value(_line(screen, "the call's result > "))}
        case "reject":
            reason = _line(screen, "why (the model reads it) > ")
            return {"action": action, "reason": reason} if reason else {"action": action}
        case _:
            return {"action": action}


def _arguments(screen: Output) -> dict[str, Any]:
    while True:
        arguments = as_object(_value(_line(screen, "all arguments, as a JSON object > ")))
        if arguments is not None:
            return arguments
        screen.write_status('That isn\'t a JSON object, such as {"path": "/tmp/notes.md"}.')


def _value(text: str) -> Any:
    """The parsed JSON, or the text if it isn't JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _line(screen: Output, prompt: str) -> str:
    screen.prompt(prompt)
    try:
        return input().strip()
    except (EOFError, KeyboardInterrupt):
        screen.write_status("")
        raise
