"""An explanation of a run, as lines for a terminal."""

from collections.abc import Iterator

from app.cli.client.api_client import Body
from app.cli.client.output import visible
from app.cli.client.table import short


def lines_of(explanation: Body) -> Iterator[str]:
    """The reasons, then the tickets, the worker and the children that they are about."""
    end = "" if explanation["outcome"] is None else f" ({explanation['outcome']})"
    yield f"Run {explanation['run_id']} is {explanation['status']}{end}."
    for reason in explanation["reasons"]:
        yield visible(f"  {reason['text']}")
    if explanation["next_attempt_at"] is not None:
        yield f"  It continues at {explanation['next_attempt_at']}."
    if (owner := explanation["owner"]) is not None:
        state = "alive" if owner["is_alive"] else "lost"
        yield f"Worker {owner['host']}, process {owner['pid']}, is {state}."
    if (failure := explanation["last_failure"]) is not None:
        yield visible(f"Its last failure: {failure['detail']} ({failure['code']})")
    for ticket in explanation["waiting_on"]:
        call = f"{ticket['tool_name']} {short(ticket['arguments'])}"
        yield visible(f"Ticket {ticket['id']} ({ticket['kind']}): {call}")
        if ticket["kind"] != "event":
            yield f"  holdfast decide {_usual_action(ticket)} {ticket['id']}"
    for child in explanation["below"]:
        status = child["outcome"] or child["status"]
        yield f"{'  ' * (child['depth'] - 1)}Child {child['id']} ({child['agent_id']}): {status}"


def _usual_action(ticket: Body) -> str:
    return "approve" if "approve" in ticket["allowed_actions"] else "respond --result JSON"
