"""RunIdentity: the ids of a run and its trace, as events have them."""

from typing import Any

from app.domain.json_values import without_none
from app.domain.runs.runs import RunRecord

SINCE_DISPATCH_ID = "since_dispatch_id"
"""The field that names what `waits_since` returns, in records and in `run_finish`."""


def session_id(record: RunRecord) -> str:
    """The id of the run's newest attempt."""
    return f"{record.id}:{record.attempt}"


def waits_since(record: RunRecord) -> str:
    """The delivery that began the activation in which the run suspended. A direct start or resume has no
    delivery; then it is the session id."""
    return record.dispatch_id or session_id(record)


def run_identity(record: RunRecord) -> dict[str, Any]:
    """The run's ids. A session is one attempt, a dispatch the delivery that began it."""
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
    return without_none(identity)
