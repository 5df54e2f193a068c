"""Identifiers: one type per noun, so that the type checker finds mixed-up ids."""

import re
from typing import NewType

Tenant = NewType("Tenant", str)
ThreadId = NewType("ThreadId", str)
RunId = NewType("RunId", str)
MessageId = NewType("MessageId", str)
InputId = NewType("InputId", str)
TicketKey = NewType("TicketKey", str)
"""A ticket's id, unique in its tenant."""
RuleId = NewType("RuleId", str)
CallId = NewType("CallId", str)
TaskId = NewType("TaskId", str)
"""`TASK_PREFIX` and a UUID, so that a model sees that it is a task."""
FileId = NewType("FileId", str)
AgentId = NewType("AgentId", str)
AgentVersion = NewType("AgentVersion", str)
WorkerId = NewType("WorkerId", str)
DeliveryId = NewType("DeliveryId", str)

TASK_PREFIX = "bg_"
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def canonical_uuid(text: str) -> str | None:
    """The lower-case form of a UUID, or None when the text is not one."""
    return text.lower() if _UUID.fullmatch(text) else None
