"""RunIdentity: who is running what, on whose behalf, as events carry it."""

from typing import Any

from app.domain.runs.runs import RunRecord


def session_id(record: RunRecord) -> str:
    """The newest attempt at the run."""
    return f"{record.id}:{record.attempt}"


def waits_since(record: RunRecord) -> str:
    """The delivery that began the activation in which a run came to wait. A direct start or a direct
    resume has no delivery: there the session is named."""
    return record.dispatch_id or session_id(record)


def run_identity(record: RunRecord) -> dict[str, Any]:
    """The run and its trace. A session is one attempt, a dispatch the delivery that began it."""
    lineage = record.lineage
    identity = {
        "thread_id": record.thread_id,
        "run_id": record.id,
        "agent_id": record.agent_id,
        "parent_thread_id": lineage.parent_thread_id,
        "parent_run_id": lineage.parent_run_id,
        "parent_tool_call_id": lineage.parent_call_id,
        "dispatch_id": record.dispatch_id,
        "session_id": session_id(record),
        "transport_request_id": record.transport_request_id,
        "origin": "user" if lineage.parent_run_id is None else "subagent",
    }
    return {key: value for key, value in identity.items() if value is not None}
