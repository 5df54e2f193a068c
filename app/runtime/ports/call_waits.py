"""What a running tool call can wait for: persons, signals, and the run's background tasks."""

from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from app.domain.children.background_tasks import TaskStatus
from app.domain.ids import TaskId
from app.domain.json_values import Json, JsonObject


class Tasks(Protocol):
    """The background tasks of a run, for its tools. None means that the run has no such task."""

    async def cancel(self, task_id: TaskId) -> TaskStatus | None:
        """Cancel an open task, and return its status."""

    async def send(self, task_id: TaskId, text: str, key: str) -> TaskStatus | None:
        """Send a message to an open task, once per key, and return its status."""


class Events(Protocol):
    async def receive(
        self, name: str, key: str, schema: JsonObject | None, timeout: float | None
    ) -> Json:
        """The payload for the call's next wait for this name and key; without one the call suspends."""


class ApprovalGiven(Struct, frozen=True, kw_only=True):
    """A person's approval of what a running tool asked."""

    decided_by: str
    decided_at: datetime
    reason: str | None
    """The person's comment."""
    arguments: JsonObject | None
    """The arguments as the person edited them, with which the tool is called now; None without an edit."""


class CarriedReply(Struct, frozen=True, kw_only=True):
    """A person's reply to a question of the call, with what the question's ticket carried for the tool."""

    carry: JsonObject
    action: Literal["accept", "decline", "cancel"]
    """`cancel` if the ticket expired."""
    result: Json


class CarriedReplies(Protocol):
    async def replies(self) -> list[CarriedReply]:
        """The replies to the call's questions that carried something, oldest first."""


class Questions(Protocol):
    async def approve(self, question: str) -> ApprovalGiven:
        """The decision about the call's next question; without one the call suspends."""

    async def ask(self, question: str, schema: JsonObject | None) -> Json:
        """The answer to the call's next question; without one the call suspends."""
