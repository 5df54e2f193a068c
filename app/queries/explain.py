"""Explain: why a run is where it is, and what would move it, in codes for programs and in words.

A question that is asked when something seems stuck: everything is read at one instant, and each reason
says who has to do what.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from app.context import ServiceContext
from app.domain.children.followups import FailedFollowup
from app.domain.ids import RunId
from app.domain.principals import Principal, Scope
from app.domain.runs.pauses import PauseRequest
from app.domain.runs.rate_limits import waits_of
from app.domain.runs.runs import (
    Created,
    Done,
    Running,
    RunRecord,
    RunStatus,
    Waiting,
    WaitingReason,
)
from app.domain.runs.terminations import Failed, Outcome, Termination, outcome, status_reason
from app.domain.tickets.tickets import (
    ANSWERED_BY_PROGRAMS,
    Ticket,
    TicketKind,
    TicketStatus,
    can_resume,
)
from app.domain.timestamps import format_timestamp
from app.queries.explain_followups import is_failing, was_given_up
from app.queries.records import run_not_found
from app.storage.children import child_runs
from app.storage.postgres.database import Connection
from app.storage.queue import deliveries, failed_followups
from app.storage.runs import diagnostics, runs
from app.storage.runs.diagnostics import Owner
from app.storage.runs.runs import RunKey
from app.storage.threads import threads
from app.storage.tickets import tickets


class ReasonCode(StrEnum):
    EXECUTING = "executing"
    OWNER_LOST = "owner_lost"
    DELIVERY_QUEUED = "delivery_queued"
    NO_WORKER = "no_worker"
    QUEUED_BEHIND_RUN = "queued_behind_run"
    THREAD_WAITING = "thread_waiting"
    WAITING_FOR_TICKETS = "waiting_for_tickets"
    LIMIT_REACHED = "limit_reached"
    WAITING_FOR_TASKS = "waiting_for_tasks"
    WAITING_FOR_CHILDREN = "waiting_for_children"
    WAITING_FOR_EVENT = "waiting_for_event"
    RATE_LIMITED = "rate_limited"
    AGENT_VERSION_UNAVAILABLE = "agent_version_unavailable"
    PAUSED = "paused"
    CANCEL_REQUESTED = "cancel_requested"
    ERRAND_FAILING = "errand_failing"
    ERRAND_GIVEN_UP = "errand_given_up"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class ExplainReason:
    code: ReasonCode
    text: str


@dataclass(frozen=True, slots=True)
class ExplainedFailure:
    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    run: RunRecord
    reasons: tuple[ExplainReason, ...]
    owner: Owner | None
    waiting_on: tuple[Ticket, ...]
    """Open tickets of the run, or of the one that occupies its thread, for people or signals to answer."""
    queue_position: int | None
    active_run_id: RunId | None
    """The run that this one stands in line behind."""
    next_attempt_at: datetime | None
    last_failure: ExplainedFailure | None
    descendants: tuple[RunRecord, ...] = ()
    """The tree of runs that it has started, each after its parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the reasons are taken from."""

    run: RunRecord
    owner: Owner | None
    position: int | None
    occupant: RunRecord | None
    unsettled: tuple[Ticket, ...]
    due_at: datetime | None
    workers: int
    patience: float
    below: tuple[RunRecord, ...]
    asked_below: tuple[Ticket, ...]
    followups: tuple[FailedFollowup, ...]

    @property
    def open_tickets(self) -> tuple[Ticket, ...]:
        """For people to answer."""
        return tuple(one for one in self._open if one.kind not in ANSWERED_BY_PROGRAMS)

    @property
    def open_events(self) -> tuple[Ticket, ...]:
        """For signals to answer."""
        return tuple(one for one in self._open if one.kind is TicketKind.EVENT)

    @property
    def open_children(self) -> int:
        return sum(one.kind is TicketKind.CHILD for one in self._open)

    @property
    def _open(self) -> tuple[Ticket, ...]:
        return tuple(one for one in self.unsettled if one.status is TicketStatus.OPEN)

    @property
    def has_news(self) -> bool:
        """Something has come that lets a waiting run go on."""
        if can_resume(self.unsettled):
            return True
        match self.run.state:
            case Waiting(WaitingReason.MANUAL_PAUSE):
                return self.run.pause is None
            case Waiting(WaitingReason.BACKGROUND_TASKS):
                return self.run.unread_inputs > 0
            case _:
                return False


async def explain(ctx: ServiceContext, principal: Principal, run_id: RunId) -> Explanation:
    """Why the run is where it is."""
    principal.require(Scope.RUNS_READ)
    async with ctx.database.transaction() as connection:
        await runs.see_one_instant(connection)
        record = await runs.get(connection, principal.tenant, run_id)
        if record is None:
            raise run_not_found(run_id)
        facts = await _facts(connection, record, ctx.heartbeat_timeout)
    return Explanation(
        run=record,
        reasons=(*_reasons(facts), *_undone(facts)),
        owner=facts.owner,
        waiting_on=(*facts.open_tickets, *facts.open_events, *facts.asked_below),
        descendants=facts.below,
        queue_position=facts.position,
        active_run_id=None if facts.occupant is None else facts.occupant.id,
        next_attempt_at=_next_attempt(facts),
        last_failure=_last_failure(record),
    )


async def _facts(connection: Connection, run: RunRecord, patience: float) -> _Facts:
    owner, position, occupant = None, None, None
    match run.state:
        case Running(worker) if worker is not None:
            owner = await diagnostics.owner(connection, worker, heartbeat_timeout=patience)
        case Created(admitted) if not admitted:
            position = await diagnostics.queue_position(connection, run)
            thread = await threads.get(connection, run.tenant, run.thread_id)
            if thread is not None and thread.open_run_id is not None:
                occupant = await runs.get(connection, run.tenant, thread.open_run_id)
    unsettled = await tickets.unsettled_of_run(
        connection, run.tenant, run.id if occupant is None else occupant.id
    )
    below = await child_runs.descendants(connection, run.tenant, run.id)
    asked = (
        []
        if run.is_done
        else await child_runs.open_tickets_of(connection, run.tenant, [child.id for child in below])
    )
    return _Facts(
        below=tuple(below),
        asked_below=tuple(asked),
        followups=tuple(await failed_followups.of_run(connection, run.tenant, run.id)),
        run=run,
        owner=owner,
        position=position,
        occupant=occupant,
        unsettled=tuple(unsettled),
        due_at=await deliveries.due_at(
            connection, RunKey(run.tenant, run.thread_id, run.id, run.attempt)
        ),
        workers=await diagnostics.living_workers(connection, heartbeat_timeout=patience),
        patience=patience,
    )


def _reasons(facts: _Facts) -> Iterator[ExplainReason]:
    state = facts.run.state
    match state:
        case Done(termination):
            yield ExplainReason(ReasonCode.DONE, _how_it_ended(facts.run.id, termination))
            return
        case Running():
            yield from _why_running(facts)
        case Created(admitted):
            yield from _on_its_way(facts) if admitted else _why_in_line(facts)
        case Waiting():
            yield from _why_waiting(facts, state)
        case _:
            assert_never(state)
    if facts.run.pause is not None:
        yield ExplainReason(ReasonCode.PAUSED, _how_paused(facts.run, facts.run.pause))
    if facts.run.cancel_requested_at is not None:
        what_next = (
            "nobody executes it, so cancelling it again ends it at once."
            if isinstance(state, Waiting) and not facts.has_news
            else "whoever executes it ends it at the next safe point."
        )
        yield ExplainReason(
            ReasonCode.CANCEL_REQUESTED, f"Somebody wants it cancelled; {what_next}"
        )


def _undone(facts: _Facts) -> Iterator[ExplainReason]:
    """What fails on the run's behalf, whether it goes on meanwhile or has ended."""
    for failed in facts.followups:
        if failed.given_up_at is None:
            yield ExplainReason(ReasonCode.ERRAND_FAILING, is_failing(failed))
        else:
            yield ExplainReason(ReasonCode.ERRAND_GIVEN_UP, was_given_up(failed))


def _how_paused(run: RunRecord, pause: PauseRequest) -> str:
    why = f": {pause.reason.rstrip('.')}" if pause.reason else ""
    what_next = (
        "It suspends at its next step border"
        if run.status is RunStatus.RUNNING
        else "No worker executes it"
    )
    return (
        f"{pause.requested_by} has paused it{why}. {what_next}, until it is resumed: "
        f"POST /v1/runs/{run.id}/resume."
    )


def _how_it_ended(run_id: RunId, termination: Termination) -> str:
    said = f"The run has ended: {status_reason(termination)}."
    if isinstance(termination, Failed):
        said = f"The run has ended: {termination.code}: {termination.detail.rstrip('.')}."
    if outcome(termination) is Outcome.SUCCEEDED:
        return said
    return (
        f"{said} As long as its thread hasn't gone on, it can be tried again from its last checkpoint: "
        f"POST /v1/runs/{run_id}/retry."
    )


def _why_running(facts: _Facts) -> Iterator[ExplainReason]:
    state, owner = facts.run.state, facts.owner
    if isinstance(state, Running) and state.owner is None:
        yield from _on_its_way(facts)
    elif owner is not None and owner.is_alive:
        yield ExplainReason(
            ReasonCode.EXECUTING,
            f"Process {owner.pid} on {owner.host} executes it, in step {facts.run.steps + 1}.",
        )
    else:
        yield ExplainReason(
            ReasonCode.OWNER_LOST,
            f"The process that executed it hasn't been heard of for {facts.patience:g} seconds. "
            "Another one takes the run over and goes on from its last checkpoint.",
        )
        yield from _if_nobody_works(facts)


def _on_its_way(facts: _Facts) -> Iterator[ExplainReason]:
    if facts.run.is_paused:
        return
    yield ExplainReason(
        ReasonCode.DELIVERY_QUEUED,
        "It can go on, and is executed as soon as a worker has a free slot for it.",
    )
    yield from _if_nobody_works(facts)


def _if_nobody_works(facts: _Facts) -> Iterator[ExplainReason]:
    if facts.workers == 0:
        yield ExplainReason(
            ReasonCode.NO_WORKER,
            "No process that executes runs is alive. Start one: `holdfast serve` or `holdfast worker`.",
        )


def _why_in_line(facts: _Facts) -> Iterator[ExplainReason]:
    occupant = facts.occupant
    behind = "another run" if occupant is None else f"run {occupant.id}, which is {occupant.status}"
    yield ExplainReason(
        ReasonCode.QUEUED_BEHIND_RUN,
        f"Its thread is occupied by {behind}; this run is number {facts.position} in line.",
    )
    if occupant is not None and occupant.is_paused:
        yield ExplainReason(
            ReasonCode.THREAD_WAITING,
            "The run that occupies the thread is paused. Resume it with "
            f"POST /v1/runs/{occupant.id}/resume, or cancel it.",
        )
        return
    match None if occupant is None else occupant.state:
        case Waiting(until=until) if until is not None:
            yield ExplainReason(
                ReasonCode.THREAD_WAITING,
                "The run that occupies the thread waits for a rate limit itself, and resumes at "
                f"{format_timestamp(until)}. Wait for it, or cancel it.",
            )
        case Waiting():
            yield ExplainReason(
                ReasonCode.THREAD_WAITING,
                "The run that occupies the thread waits itself. Answer its tickets, or cancel it.",
            )


def _why_waiting(facts: _Facts, state: Waiting) -> Iterator[ExplainReason]:
    if state.reason is WaitingReason.AGENT_VERSION_UNAVAILABLE:
        yield ExplainReason(
            ReasonCode.AGENT_VERSION_UNAVAILABLE,
            f"{state.message}. It goes on by itself once a worker has that version of its agent, "
            "with its model and its tools; or cancel it, and retry it with the current version.",
        )
        return
    if state.until is not None:
        yield ExplainReason(ReasonCode.RATE_LIMITED, _until_when(facts.run, state.until))
        yield from _if_nobody_works(facts)
        return
    if facts.has_news:
        yield from _on_its_way(facts)
    for about_limit in (one for one in facts.open_tickets if one.kind is TicketKind.LIMIT):
        yield ExplainReason(
            ReasonCode.LIMIT_REACHED,
            f"{about_limit.message}. Nothing of it goes on until somebody approves more of that, says how "
            "much more, or rejects it, which ends the run.",
        )
    if tickets_open := len(facts.open_tickets):
        yield ExplainReason(
            ReasonCode.WAITING_FOR_TICKETS,
            f"{tickets_open} {'ticket is' if tickets_open == 1 else 'tickets are'} open. "
            f"Answer with POST /v1/runs/{facts.run.id}/decisions.",
        )
    asked = f", {len(facts.asked_below)} of whose tickets are open" if facts.asked_below else ""
    if tasks_open := facts.run.open_tasks:
        yield ExplainReason(
            ReasonCode.WAITING_FOR_TASKS,
            f"{tasks_open} {'task of its is' if tasks_open == 1 else 'tasks of its are'} still at "
            f"work in the background{asked}: GET /v1/runs/{facts.run.id}/tasks.",
        )
    if children_open := facts.open_children:
        yield ExplainReason(
            ReasonCode.WAITING_FOR_CHILDREN,
            f"It waits for {children_open} {'run' if children_open == 1 else 'runs'} of other agents"
            f"{asked}: GET /v1/runs/{facts.run.id}/children.",
        )
    if state.reason is WaitingReason.MANUAL_PAUSE:
        return
    for waits in facts.open_events:
        yield ExplainReason(ReasonCode.WAITING_FOR_EVENT, _what_comes(waits))
    if not (facts.has_news or tickets_open or tasks_open or children_open or facts.open_events):
        yield ExplainReason(
            ReasonCode.WAITING_FOR_EVENT, f"It waits for something from outside: {state.message}."
        )


def _what_comes(ticket: Ticket) -> str:
    wait = ticket.event
    assert wait is not None
    until = "" if ticket.expires_at is None else f" until {format_timestamp(ticket.expires_at)}"
    return (
        f"The call of {ticket.tool_name!r} waits for the event {wait.name!r} with the key "
        f"{wait.key!r}{until}. Send it with POST /v1/signals."
    )


def _until_when(run: RunRecord, until: datetime) -> str:
    waits = waits_of(run.run_state)
    return (
        f"{waits.newest.rstrip('.')}. The run resumes at {format_timestamp(until)}, without a person. It has waited "
        f"{waits.count} times for rate limits, this wait included, {waits.seconds:g} seconds in all."
    )


def _next_attempt(facts: _Facts) -> datetime | None:
    """When somebody will look at the run, as far as that has a time."""
    if isinstance(facts.run.state, Waiting) and facts.run.state.until is not None:
        return facts.run.state.until
    if facts.due_at is not None or facts.owner is None or facts.owner.is_alive:
        return facts.due_at
    return facts.owner.heartbeat_at + timedelta(seconds=facts.patience)


def _last_failure(run: RunRecord) -> ExplainedFailure | None:
    if isinstance(run.state, Done):
        end = run.state.termination
        return ExplainedFailure(end.code, end.detail) if isinstance(end, Failed) else None
    if run.losses:
        return ExplainedFailure(
            "worker_lost", f"{run.losses} workers were lost over it since its last checkpoint."
        )
    return None
