"""What is visible of a run at one moment, and its events by pages."""

from typing import Any

from pydantic import (
    Field,
)

from app.api.schemas.common import ResponseModel
from app.api.schemas.messages import MessageOut
from app.api.schemas.runs.run import RunOut
from app.api.schemas.tickets import TicketOut


class ActivityOut(ResponseModel):
    """What a tool, a background task or a child is doing: its `activity_snapshot` with all patches applied."""

    message_id: str
    activity_type: str
    content: Any


class OpenToolCallOut(ResponseModel):
    """A tool call of the message that is being written, or one that has no result yet."""

    tool_call_id: str
    name: str
    arguments: str = Field(description="Arguments so far, as JSON text that may be incomplete.")


class OpenOutput(ResponseModel):
    """What a page shows of a run's unfinished work."""

    open_reasoning: str = Field(
        description="Reasoning so far of the message that is being written."
    )
    open_text: str = Field(description="Text so far of the message that is being written.")
    open_tool_calls: list[OpenToolCallOut]
    activities: list[ActivityOut] = Field(
        description="Present activities of the run, in the order in which they were first shown."
    )
    has_more_activities: bool = Field(
        description="Whether activities are left out because a snapshot has no room for them: those that have "
        "very many changes, and those that changed longest ago. The events have them all."
    )
    tickets: list[TicketOut]
    has_more_tickets: bool = Field(
        description="Whether more tickets are open than a snapshot has room for; GET /v1/tickets lists all."
    )
    last_event_id: int
    has_more_messages: bool = Field(
        description="Whether `messages` lacks older ones; GET /v1/threads/{thread_id}/messages lists all."
    )


class SnapshotHead(OpenOutput):
    """A snapshot without its messages."""

    run: RunOut


class SnapshotOut(SnapshotHead):
    """All that a client needs to show a run. Follow its events after `last_event_id`."""

    messages: list[MessageOut]


class EventsPage(ResponseModel):
    """A page of events, in the form in which streams send them."""

    items: list[dict[str, Any]]
    next_cursor: str = Field(
        description="Id of the last event that was read. A client polls with it as `cursor`."
    )
    has_more: bool
