"""RunInfo: what tools and plugins may know of the run that they work for."""

from copy import deepcopy

from msgspec import Struct

from app.domain.ids import AgentId, CallId, RunId, Tenant, ThreadId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import RunRecord


class RunInfo(Struct, frozen=True, kw_only=True):
    """The run that a tool or a hook works for. Its objects are copies: changing them changes nothing."""

    id: RunId
    thread_id: ThreadId
    thread_key: str | None = None
    """The client's own name of the thread, if it has one."""
    agent_id: AgentId
    """The agent that the run was started with. After a hand-off another agent executes it."""
    tenant: Tenant
    started_by: str
    """The subject of the API key that started the run, or that started the topmost run above it."""
    attempt: int
    """How often a worker has claimed the run: 1 at first, more after each resume and takeover."""
    metadata: JsonObject = {}
    """The client's own data from the start of the run."""
    context: JsonObject = {}
    """What a server with the scope `runs:context` sent with the start. No client can change it, and neither
    models nor API responses show it. Delegates have the context of the run above them."""
    parent_run_id: RunId | None = None
    """The run that waits for this one, if it was started as a delegate."""
    parent_call_id: CallId | None = None
    """The call of the parent that started this run."""


def run_info(record: RunRecord) -> RunInfo:
    lineage = record.lineage
    return RunInfo(
        id=record.id,
        thread_id=record.thread_id,
        thread_key=record.thread_key,
        agent_id=record.agent_id,
        tenant=record.tenant,
        started_by=record.started_by,
        attempt=record.attempt,
        metadata=deepcopy(dict(record.metadata)),
        context=deepcopy(dict(record.context)),
        parent_run_id=lineage.parent_run_id,
        parent_call_id=None if lineage.parent_call_id is None else CallId(lineage.parent_call_id),
    )
