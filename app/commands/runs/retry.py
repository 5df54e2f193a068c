"""Retry: a new run goes on where the thread's latest one has failed.

The failed run stays as it is. What it was asked is in the log, and so is what it did until its end: the
new run refers to the same input, repeats nothing of it, and begins with the step that comes next. A run
that never began has nothing in the log yet: its messages are queued for the new one.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from app import telemetry
from app.clock import new_id
from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.commands.runs.capabilities import require_supported
from app.commands.runs.enqueue import Queued, enqueue
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
from app.queries.records import run_not_found
from app.runtime.handoff import active_agent
from app.storage.postgres.database import Connection
from app.storage.runs import runs
from app.storage.threads import inputs, threads


class VersionOfAgent(StrEnum):
    """Which version of its agent goes on."""

    SAME = "same"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class RetryRequest:
    version: VersionOfAgent
    limits: JsonObject = field(default_factory=dict)
    """In place of the failed run's. Either way the new run has used nothing yet."""
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
) -> Queued:
    """Accept a new run in the failed one's place, or refuse and change nothing."""
    principal.require(Scope.RUNS_WRITE)
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_once(connection, principal, once)
        known = await runs.get(connection, principal.tenant, run_id)
        if known is None:
            raise run_not_found(run_id)
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
            messages=tuple(await _never_taken(connection, failed)),
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
        line = await enqueue(ctx, transaction, thread, run, deliver=deliver)
        if line is None:
            raise RuntimeError(f"the new id {new_run_id} is taken")
        await keep_answer(connection, principal, once, line.record)
    telemetry.runs_started.labels(agent_id).inc()
    return line


def _require_retryable(thread: Thread, run: RunRecord) -> None:
    state = run.state
    if not isinstance(state, Done):
        raise Conflict(
            "run_not_finished",
            f"The run is {run.status.value}. Only a run that has ended can be tried again.",
        )
    if outcome(state.termination) is Outcome.SUCCEEDED:
        raise Conflict(
            "not_retryable", "The run has succeeded. Start a new one to go on with its thread."
        )
    if thread.latest_run_id != run.id:
        raise Conflict(
            "not_retryable",
            "The thread has gone on since with another run; only its latest one can be tried again.",
            latest_run_id=thread.latest_run_id,
        )


async def _agent(
    ctx: ServiceContext, connection: Connection, failed: RunRecord, version: VersionOfAgent
) -> tuple[AgentId, AgentVersion]:
    """Whoever the failed run had been handed to, else the agent that it was started with."""
    remembered = await threads.state(connection, failed.tenant, failed.thread_id)
    at_work = None if failed.run_state is None else active_agent(remembered)
    agent_id, agent_version = at_work or (failed.agent_id, failed.agent_version)
    if version is VersionOfAgent.CURRENT or agent_version is None:
        return agent_id, ctx.agents.version(agent_id)
    return agent_id, agent_version


async def _never_taken(connection: Connection, failed: RunRecord) -> list[Message]:
    """What is to enter the log for the first time."""
    if failed.input is not None:
        return []
    return await inputs.retracted(connection, failed.tenant, failed.id)


def _lineage(run_id: RunId, failed: RunRecord) -> Lineage:
    """A retried child isn't a child any more: its parent has had the failure as its answer."""
    return Lineage(run_id, retry_of=failed.id)
