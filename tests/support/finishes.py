"""What a `run_finish` says about a suspension."""

from app.domain.json_values import JsonObject


def asked_by(finish: JsonObject) -> list[str]:
    """The names of the tickets that people have to decide. `needs_decision` agrees with them."""
    waiting = finish["waiting"]
    assert waiting["needs_decision"] is bool(waiting["tickets"])
    return [ticket["name"] for ticket in waiting["tickets"]]
