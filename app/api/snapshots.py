"""How snapshots of runs and threads are shown."""

from typing import Annotated, Any

from fastapi import Query

from app.api.schemas.runs.snapshot import ActivityOut, OpenToolCallOut
from app.api.schemas.tickets import TicketOut
from app.queries.snapshots import (
    DEFAULT_SNAPSHOT_MESSAGES,
    MAX_SNAPSHOT_MESSAGES,
    RunSnapshot,
    ThreadSnapshot,
)

MessagesLimit = Annotated[
    int,
    Query(
        ge=1,
        le=MAX_SNAPSHOT_MESSAGES,
        description="Maximum number of messages, the newest. Large messages may shorten the list.",
    ),
]
DEFAULT_MESSAGES_LIMIT = DEFAULT_SNAPSHOT_MESSAGES


def open_output(found: RunSnapshot | ThreadSnapshot) -> dict[str, Any]:
    """The fields of `OpenOutput`."""
    view = found.view
    open_tickets = () if view is None else (*view.open_tickets, *view.tickets_below)
    return {
        "open_text": found.open_parts.text,
        "open_reasoning": found.open_parts.reasoning,
        "open_tool_calls": [
            OpenToolCallOut.model_validate(call) for call in found.open_parts.calls
        ],
        "activities": [ActivityOut.model_validate(each) for each in found.activities.shown],
        "has_more_activities": found.activities.has_more,
        "tickets": [TicketOut.model_validate(ticket) for ticket in open_tickets],
        "has_more_tickets": view is not None and view.has_more_tickets,
        "last_event_id": found.last_event_id,
        "has_more_messages": found.messages.has_more,
    }
