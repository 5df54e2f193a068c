"""Why a run is where it is, as codes and sentences, derived from its rows. Each reason says what has to be done."""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from app.domain.children.followups import FailedFollowup
from app.domain.ids import RunId
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
from app.domain.runs.terminations import Outcome, Termination, outcome, termination_to_json
from app.domain.tickets.tickets import (
    ANSWERED_BY_PROGRAMS,
    Ticket,
    TicketKind,
    TicketStatus,
    can_resume,
)
from app.domain.timestamps import format_timestamp
from app.queries.explain_followups import is_failing, was_given_up
from app.storage.runs.diagnostics import Owner


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
    MCP_SERVER_AWAY = "mcp_server_away"
    PAUSED = "paused"
    CANCEL_REQUESTED = "cancel_requested"
    FOLLOWUP_FAILING = "followup_failing"
    FOLLOWUP_GIVEN_UP = "followup_given_up"
    DONE = "done"


class ExplainReason(Struct, frozen=True):
    code: ReasonCode
    text: str


class Facts(Struct, frozen=True, kw_only=True):
    """The rows that the reasons are derived from."""

    run: RunRecord
    owner: Owner | None
    position: int | None
    occupant: RunRecord | None
    unsettled: tuple[Ticket, ...]
    due_at: datetime | None
    workers: int
    heartbeat_timeout: float
    descendants: tuple[RunRecord, ...]
    tickets_of_descendants: tuple[Ticket, ...]
    followups: tuple[FailedFollowup, ...]

    @property
    def open_tickets(self) -> tuple[Ticket, ...]:
        """Open tickets that people answer."""
        return tuple(one for one in self._open if one.kind not in ANSWERED_BY_PROGRAMS)

    @property
    def open_events(self) -> tuple[Ticket, ...]:
        """Open tickets that signals answer."""
        return tuple(one for one in self._open if one.kind is TicketKind.EVENT)

    @property
    def open_children(self) -> int:
        return sum(one.kind is TicketKind.CHILD for one in self._open)

    @property
    def _open(self) -> tuple[Ticket, ...]:
        return tuple(one for one in self.unsettled if one.status is TicketStatus.OPEN)

    @property
    def can_resume(self) -> bool:
        """Whether a waiting run has what it waits for."""
        if can_resume(self.unsettled):
            return True
        match self.run.state:
            case Waiting(WaitingReason.MANUAL_PAUSE):
                return self.run.pause is None
            case Waiting(WaitingReason.BACKGROUND_TASKS):
                return self.run.unread_inputs > 0
            case _:
                return False


def reasons_of(facts: Facts) -> Iterator[ExplainReason]:
    state = facts.run.state
    match state:
        case Done(termination):
            yield ExplainReason(ReasonCode.DONE, _termination_text(facts.run.id, termination))
            return
        case Running():
            yield from _why_running(facts)
        case Created(admitted):
            yield from _why_ready(facts) if admitted else _why_queued(facts)
        case Waiting():
            yield from _why_waiting(facts, state)
        case _:
            assert_never(state)
    if facts.run.pause is not None:
        yield ExplainReason(ReasonCode.PAUSED, _pause_text(facts.run, facts.run.pause))
    if facts.run.cancel_requested_at is not None:
        what_next = (
            "No worker executes it: cancel it again to end it at once."
            if isinstance(state, Waiting) and not facts.can_resume
            else "The worker that executes it ends it at the next safe point."
        )
        yield ExplainReason(ReasonCode.CANCEL_REQUESTED, f"Its cancel was requested. {what_next}")


def failed_followups_of(facts: Facts) -> Iterator[ExplainReason]:
    """The run's failed follow-ups, also after its end."""
    for failed in facts.followups:
        if failed.given_up_at is None:
            yield ExplainReason(ReasonCode.FOLLOWUP_FAILING, is_failing(failed))
        else:
            yield ExplainReason(ReasonCode.FOLLOWUP_GIVEN_UP, was_given_up(failed))


def server_away(server: str, error: str) -> ExplainReason:
    """The reason for a server that the run's agent needs and that can't be started."""
    return ExplainReason(
        ReasonCode.MCP_SERVER_AWAY,
        f"The MCP server {server!r} is away, so calls of its tools fail: {error.rstrip('.')}. GET"
        f" /v1/mcp-servers/{server} has its state. A later call starts it again.",
    )


def _pause_text(run: RunRecord, pause: PauseRequest) -> str:
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


def _termination_text(run_id: RunId, termination: Termination) -> str:
    known = termination_to_json(termination)
    about = [str(known[name]).rstrip(".") for name in ("type", "code", "detail") if name in known]
    text = f"The run has ended: {': '.join(about)}."
    if outcome(termination) is Outcome.SUCCEEDED:
        return text
    return (
        f"{text} As long as it is the thread's latest run, it can be retried from its last checkpoint: "
        f"POST /v1/runs/{run_id}/retry."
    )


def _why_running(facts: Facts) -> Iterator[ExplainReason]:
    state, owner = facts.run.state, facts.owner
    if isinstance(state, Running) and state.owner is None:
        yield from _why_ready(facts)
    elif owner is not None and owner.is_alive:
        yield ExplainReason(
            ReasonCode.EXECUTING,
            f"Process {owner.pid} on {owner.host} executes it, in step {facts.run.steps + 1}.",
        )
    else:
        yield ExplainReason(
            ReasonCode.OWNER_LOST,
            f"The process that executed it has written no heartbeat for {facts.heartbeat_timeout:g} seconds. "
            "Another process takes the run over and continues from its last checkpoint.",
        )
        yield from _if_no_worker(facts)


def _why_ready(facts: Facts) -> Iterator[ExplainReason]:
    if facts.run.is_paused:
        return
    yield ExplainReason(
        ReasonCode.DELIVERY_QUEUED,
        "It is ready, and is executed as soon as a worker has a free slot.",
    )
    yield from _if_no_worker(facts)


def _if_no_worker(facts: Facts) -> Iterator[ExplainReason]:
    if facts.workers == 0:
        yield ExplainReason(
            ReasonCode.NO_WORKER,
            "No process that executes runs is alive. Start one: `holdfast serve` or `holdfast worker`.",
        )


def _why_queued(facts: Facts) -> Iterator[ExplainReason]:
    occupant = facts.occupant
    behind = "another run" if occupant is None else f"run {occupant.id}, which is {occupant.status}"
    yield ExplainReason(
        ReasonCode.QUEUED_BEHIND_RUN,
        f"Its thread is occupied by {behind}. This run is number {facts.position} in the queue.",
    )
    if occupant is not None and occupant.is_paused:
        yield ExplainReason(
            ReasonCode.THREAD_WAITING,
            "The thread's open run is paused. Resume it with "
            f"POST /v1/runs/{occupant.id}/resume, or cancel it.",
        )
        return
    match None if occupant is None else occupant.state:
        case Waiting(until=until) if until is not None:
            yield ExplainReason(
                ReasonCode.THREAD_WAITING,
                "The thread's open run waits for a rate limit, and resumes at "
                f"{format_timestamp(until)}. Wait for it, or cancel it.",
            )
        case Waiting():
            yield ExplainReason(
                ReasonCode.THREAD_WAITING,
                "The thread's open run waits, too. Answer its tickets, or cancel it.",
            )


def _why_waiting(facts: Facts, state: Waiting) -> Iterator[ExplainReason]:
    if state.reason is WaitingReason.AGENT_VERSION_UNAVAILABLE:
        yield ExplainReason(
            ReasonCode.AGENT_VERSION_UNAVAILABLE,
            f"{state.message}. It resumes once a worker has that version of its agent, with its model "
            "and its tools. Or cancel it, and retry it with the current version.",
        )
        return
    if state.until is not None:
        yield ExplainReason(ReasonCode.RATE_LIMITED, _rate_limit_text(facts.run, state.until))
        yield from _if_no_worker(facts)
        return
    if facts.can_resume:
        yield from _why_ready(facts)
    for limit in (one for one in facts.open_tickets if one.kind is TicketKind.LIMIT):
        yield ExplainReason(
            ReasonCode.LIMIT_REACHED,
            f"{limit.message}. The run continues when the ticket is approved or edited to raise the "
            "limit. A rejection ends the run.",
        )
    if tickets_open := len(facts.open_tickets):
        yield ExplainReason(
            ReasonCode.WAITING_FOR_TICKETS,
            f"{tickets_open} {'ticket is' if tickets_open == 1 else 'tickets are'} open. "
            f"Answer with POST /v1/runs/{facts.run.id}/decisions.",
        )
    tickets_below = len(facts.tickets_of_descendants)
    are = "is" if tickets_below == 1 else "are"
    below = f", {tickets_below} of whose tickets {are} open" if tickets_below else ""
    if tasks_open := facts.run.open_tasks:
        yield ExplainReason(
            ReasonCode.WAITING_FOR_TASKS,
            f"{tasks_open} of its background {'task is' if tasks_open == 1 else 'tasks are'} not "
            f"finished{below}: GET /v1/runs/{facts.run.id}/tasks.",
        )
    if children_open := facts.open_children:
        yield ExplainReason(
            ReasonCode.WAITING_FOR_CHILDREN,
            f"It waits for {children_open} {'run' if children_open == 1 else 'runs'} of other agents"
            f"{below}: GET /v1/runs/{facts.run.id}/children.",
        )
    if state.reason is WaitingReason.MANUAL_PAUSE:
        return
    for waits in facts.open_events:
        yield ExplainReason(ReasonCode.WAITING_FOR_EVENT, _event_text(waits))
    if not (facts.can_resume or tickets_open or tasks_open or children_open or facts.open_events):
        yield ExplainReason(
            ReasonCode.WAITING_FOR_EVENT, f"It waits for an external event: {state.message}."
        )


def _event_text(ticket: Ticket) -> str:
    wait = ticket.event
    assert wait is not None
    until = "" if ticket.expires_at is None else f" until {format_timestamp(ticket.expires_at)}"
    return (
        f"The call of {ticket.tool_name!r} waits for the event {wait.name!r} with the key "
        f"{wait.key!r}{until}. Send it with POST /v1/signals."
    )


def _rate_limit_text(run: RunRecord, until: datetime) -> str:
    waits = waits_of(run.run_state)
    return (
        f"{waits.newest.rstrip('.')}. The run resumes at {format_timestamp(until)}, without a person. It has waited "
        f"{waits.count} times for rate limits, this wait included, {waits.seconds:g} seconds in all."
    )
