"""What is kept of a thread and its newest run: to look at, to compare between stores, to find wrong."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.domain.checkpoints import materialize_output
from app.domain.json_values import JsonObject
from app.domain.runs.identity import waits_since
from app.domain.runs.runs import (
    LIFECYCLE,
    Created,
    Done,
    MessageOutput,
    Running,
    RunRecord,
    Waiting,
)
from app.domain.runs.terminations import termination_to_json
from app.domain.threads.messages import LoggedMessage, Role, message_to_json
from app.domain.tickets.tickets import (
    Ticket,
    TicketStatus,
    ticket_order,
    ticket_to_json,
    waiting_to_json,
)
from app.domain.tools.tool_calls import CallState
from tests.support.event_order import Event, check_thread

SUBJECT = "ann"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    record: RunRecord
    log: Sequence[LoggedMessage]
    events: Sequence[Event]
    tickets: Sequence[Ticket]
    calls: Sequence[CallState]
    thread_state: JsonObject

    @property
    def open_tickets(self) -> list[Ticket]:
        ours = [ticket for ticket in self.tickets if ticket.status is TicketStatus.OPEN]
        return sorted(ours, key=ticket_order)

    @property
    def has_answer(self) -> bool:
        return any(
            ticket.status is TicketStatus.DECIDED and ticket.applied_at is None
            for ticket in self.tickets
        )

    @property
    def of_run(self) -> list[Event]:
        return [event for event in self.events if event["run_id"] == self.record.id]


def check_rows(rows: Rows) -> None:
    """What must be true of a thread whenever anybody looks."""
    check_thread(rows.events)
    assert [entry.seq for entry in rows.log] == list(range(1, len(rows.log) + 1)), (
        "a gap in the log"
    )
    _check_ranges(rows)
    _check_end(rows)
    if not isinstance(rows.record.state, Running):
        _check_every_call_has_a_result(rows)
    if isinstance(rows.record.state, Done):
        assert not rows.calls, "a done run keeps calls"
        assert not rows.open_tickets, "a done run keeps tickets"


def _check_ranges(rows: Rows) -> None:
    record = rows.record
    if record.input is not None:
        assert record.input.range is not None
        stretch = rows.log[record.input.range.from_seq - 1 : record.input.range.to_seq]
        ids = tuple(entry.message.id for entry in stretch)
        assert ids == record.input.trigger_message_ids, "the input isn't where the record says"
        made = materialize_output(
            rows.log,
            run_id=record.id,
            input=record.input,
            previous=MessageOutput(),
            step_count=record.steps,
        )
        assert made.output == record.output, "the output isn't where the record says"


def _check_end(rows: Rows) -> None:
    """The last finish says the same as the record; a run that moves has none open."""
    record = rows.record
    said = [event for event in rows.of_run if event["event_type"] in ("run_start", "run_finish")]
    match record.state:
        case Created():
            assert not said, "said something before it was claimed"
        case Running():
            assert not said or said[-1]["event_type"] == "run_start" or record.attempt > 1
        case Waiting(reason, message):
            finish = said[-1]
            assert finish["termination"] == {"type": "suspended"}, "waits, and says something else"
            waiting = finish["waiting"]
            assert (waiting["reason"], waiting["message"]) == (reason.value, message)
            still_open = [
                one for one in waiting["tickets"] if one["id"] in _keys(rows.open_tickets)
            ]
            at_rest = waiting_to_json(reason, message, rows.open_tickets, waits_since(record))
            assert still_open == at_rest["tickets"], "waits for other tickets than it said"
        case Done(termination, _, final_output):
            finish = said[-1]
            assert finish["event_type"] == "run_finish", "done without a finish"
            assert finish["termination"] == termination_to_json(termination), "another end"
            assert finish["result"]["status"] == "done"
            _check_last_words(rows, finish, final_output)


def _check_last_words(rows: Rows, finish: Event, final_output: str | None) -> None:
    """A done run's answer is the last text of the assistant in it, and its state says that it is done."""
    texts = [
        entry.message.text
        for entry in rows.log
        if entry.message.run_id == rows.record.id and entry.message.role is Role.ASSISTANT
    ]
    spoken = next((text for text in reversed(texts) if text), "")
    assert finish["result"]["response"] == spoken, "another response than the last words"
    assert final_output == (spoken or None), "another output than the last words"
    extensions = (rows.record.run_state or {}).get("extensions", {})
    assert extensions[LIFECYCLE]["status"] == "done", "done, and its state says otherwise"


def _keys(tickets: Sequence[Ticket]) -> set[str]:
    return {ticket.id for ticket in tickets}


def _check_every_call_has_a_result(rows: Rows) -> None:
    """At rest no call of the log is without a message, so that the next run can be answered."""
    unanswered: set[str] = set()
    for entry in rows.log:
        message = entry.message
        if message.role is Role.TOOL:
            unanswered.discard(message.tool_call_id or "")
        elif message.tool_calls:
            assert not unanswered, f"calls without a result: {unanswered}"
            unanswered = {call.id for call in message.tool_calls}
    assert not unanswered, f"calls without a result: {unanswered}"


def borders_of(events: Sequence[Event], record: RunRecord) -> tuple[bool, int]:
    """Whether an activation is open, and the newest step that was begun."""
    ours = [event for event in events if event["run_id"] == record.id]
    last = {event["event_type"]: event["seq"] for event in ours}
    begun = [event["step"] for event in ours if event["event_type"] == "step_start"]
    is_open = "run_start" in last and last["run_start"] > last.get("run_finish", 0)
    return is_open, max(begun, default=0)


# --- to compare -----------------------------------------------------------------------------------

_TIMES = {"ts", "created_at", "updated_at", "started_at", "finished_at", "applied_at", "at"}
_CHANCE = {
    "worker",
    "streamed",
    "duration_ms",
    "decision_id",
    "since_dispatch_id",
    "idempotency_key",
    "session_id",
    "active_ms",
    "lost_ms",
}


def check_same(one: Rows, other: Rows) -> None:
    """Two stores keep the same of the same script."""
    difference = _difference(_comparable(one), _comparable(other), "rows")
    assert difference is None, difference


def _difference(one: Any, other: Any, place: str) -> str | None:
    match one, other:
        case dict(), dict() if one.keys() == other.keys():
            pairs = [(f"{place}.{key}", one[key], other[key]) for key in one]
        case list(), list() if len(one) == len(other):
            pairs = [
                (f"{place}[{at}]", *pair) for at, pair in enumerate(zip(one, other, strict=True))
            ]
        case _:
            return None if one == other else f"{place}: {one!r} here, {other!r} there"
    found = (_difference(left, right, where) for where, left, right in pairs)
    return next(filter(None, found), None)


def _comparable(rows: Rows) -> Any:
    """The rows without their times, and with ids that say where each was first seen."""
    record = rows.record
    whole = {
        "events": list(rows.events),
        "log": [message_to_json(entry.message) for entry in rows.log],
        "record": {
            "state": _state_of(record),
            "input": None if record.input is None else asdict(record.input),
            "output": asdict(record.output),
            "steps": record.steps,
            "usage": asdict(record.usage),
            "run_state": record.run_state,
            "attempt": record.attempt,
            "losses": record.losses,
            "is_unwanted": record.cancel_requested_at is not None,
            "events_from": record.events_from,
        },
        "tickets": [_ticket_of(ticket) for ticket in rows.tickets],
        "thread_state": rows.thread_state,
        "calls": [asdict(state) for state in rows.calls],
    }
    return _renamed(json.loads(json.dumps(whole, default=str)), {})


def _state_of(record: RunRecord) -> Any:
    match record.state:
        case Done(termination, _, final_output):
            return ["done", termination_to_json(termination), final_output]
        case Waiting(reason, message):
            return ["waiting", reason.value, message]
        case Running(owner):
            return ["running", owner is not None]
        case Created(admitted):
            return ["created", admitted]


def _ticket_of(ticket: Ticket) -> Any:
    answer = None if ticket.decision is None else asdict(ticket.decision.answer)
    is_applied = ticket.applied_at is not None
    return [ticket_to_json(ticket), ticket.status.value, answer, is_applied]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Fresh ids, which no two executions share, become numbers in the order in which they appear."""
    match value:
        case dict():
            kept = {key: one for key, one in value.items() if key not in _TIMES | _CHANCE}
            return {key: _renamed(one, names) for key, one in kept.items()}
        case list():
            return [_renamed(one, names) for one in value]
        case str() if len(value) == 36 and value.count("-") == 4:
            return names.setdefault(value, f"id {len(names) + 1}")
        case _:
            return value
