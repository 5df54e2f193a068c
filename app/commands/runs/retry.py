"""Retry: a new run continues where the thread's latest run failed.

The failed run doesn't change. Its input and its steps are in the message log: the new run refers to the
same input, repeats none of them, and begins with the next step. If the failed run never executed, its
messages aren't in the log yet and are queued for the new run.
"""

from enum import StrEnum

from msgspec import Struct

from app import telemetry
from app.clock import new_id
from app.commands.idempotency import IdempotentCommand, begin_idempotent, store_response
from app.commands.runs.capabilities import require_supported
from app.commands.runs.enqueue import AcceptedRun, enqueue
from app.commands.runs.require_prices import require_prices
from app.context import ServiceContext
from app.domain.agents.capabilities import RootNeeds
from app.domain.errors import Conflict
from app.domain.ids import AgentId, AgentVersion, RunId
from app.domain.json_values import JsonObject, digest
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import (
    TRANSPORT_REQUEST_ID,
    Done,
    Lineage,
    NewRun,
    RunRecord,
    transport_in_request,
)
from app.domain.runs.terminations import Outcome, outcome
from app.domain.threads.messages import Message
from app.domain.threads.threads import Thread
from app.queries.records import found_run, run_not_found
from app.runtime.handoff import active_agent
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import inputs, sent_messages, threads


class VersionOfAgent(StrEnum):
    """Which version of the agent executes the new run."""

    SAME = "same"
    CURRENT = "current"


class RetryRequest(Struct, frozen=True):
    version: VersionOfAgent
    limits: JsonObject = {}
    """Replace the failed run's limits. The new run's usage begins at zero either way."""
    traceparent: str | None = None
    transport_request_id: str | None = None


async def retry(
    ctx: ServiceContext,
    principal: Principal,
    run_id: RunId,
    request: RetryRequest,
    *,
    deliver: bool,
    once: IdempotentCommand[RunRecord] | None = None,
) -> AcceptedRun:
    """Accept a new run in the place of the failed one, or refuse and change nothing."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_idempotent(connection, principal, once)
        known = await found_run(connection, principal.tenant, run_id)
        thread = await threads.lock(connection, principal.tenant, known.thread_id)
        failed = await runs.get(connection, principal.tenant, run_id)
        if thread is None or failed is None:
            raise run_not_found(run_id)
        _require_retryable(thread, failed)
        agent_id, agent_version = await _agent(ctx, connection, failed, request.version)
        require_supported(ctx, agent_id, RootNeeds(limits=bool(request.limits)))
        new_run_id = RunId(new_id())
        run = NewRun(
            tenant=failed.tenant,
            id=new_run_id,
            thread_id=failed.thread_id,
            agent_id=agent_id,
            agent_version=agent_version,
            messages=tuple(await _unread_messages(connection, failed)),
            input=failed.input,
            request={
                **{k: v for k, v in failed.request.items() if k != TRANSPORT_REQUEST_ID},
                **request.limits,
                **transport_in_request(request.transport_request_id),
            },
            request_digest=digest(["retry", run_id, agent_version]),
            metadata=failed.metadata,
            started_by=principal.subject,
            lineage=_lineage(new_run_id, failed),
            traceparent=request.traceparent,
        )
        await require_prices(ctx, run)
        accepted = await enqueue(ctx, transaction, thread, run, deliver=deliver)
        if accepted is None:
            raise RuntimeError(f"the new id {new_run_id} is taken")
        await store_response(connection, principal, once, accepted.record)
    telemetry.runs_started.labels(agent_id).inc()
    return accepted


def _require_retryable(thread: Thread, run: RunRecord) -> None:
    state = run.state
    if not isinstance(state, Done):
        raise Conflict(
            "run_not_finished",
            f"The run is {run.status.value}. Only a run that has ended can be retried.",
        )
    if outcome(state.termination) is Outcome.SUCCEEDED:
        raise Conflict(
            "not_retryable", "The run has succeeded. Start a new run to continue its thread."
        )
    if thread.latest_run_id != run.id:
        raise Conflict(
            "not_retryable",
            "Another run came after this one. Only the latest run of a thread can be retried.",
            latest_run_id=thread.latest_run_id,
        )


async def _agent(
    ctx: ServiceContext, connection: Connection, failed: RunRecord, version: VersionOfAgent
) -> tuple[AgentId, AgentVersion]:
    """The agent that a hand-off made active, else the agent that the failed run was started with."""
    thread_state = await threads.state(connection, failed.tenant, failed.thread_id)
    active = None if failed.run_state is None else active_agent(thread_state)
    agent_id, agent_version = active or (failed.agent_id, failed.agent_version)
    if version is VersionOfAgent.CURRENT or agent_version is None:
        return agent_id, ctx.agents.version(agent_id)
    return agent_id, agent_version


async def _unread_messages(connection: Connection, failed: RunRecord) -> list[Message]:
    """The messages of a failed run that never executed. Such a run has read none."""
    if failed.input is not None:
        return []
    unread = await inputs.retracted(connection, failed.tenant, failed.id)
    if not unread:
        raise Conflict(
            "not_retryable", "All messages of the run were retracted. Start a new run instead."
        )
    ids = [message.id for message in unread]
    if await sent_messages.known(connection, failed.tenant, failed.thread_id, ids):
        raise Conflict(
            "not_retryable",
            "Messages of the run were sent again meanwhile. Start a new run with the others.",
        )
    return unread


def _lineage(run_id: RunId, failed: RunRecord) -> Lineage:
    """The retry of a child run has no parent: that has already received the failure."""
    return Lineage(run_id, retry_of=failed.id)
