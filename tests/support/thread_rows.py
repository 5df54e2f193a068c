"""The rows of a thread and its newest run, with checks and comparisons."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from app.domain.checkpoints import materialize_output
from app.domain.events.run_finish import ticket_in_finish
from app.domain.json_values import JsonObject
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
from app.domain.threads.messages import (
    LoggedMessage,
    Role,
    logged_message_to_json,
    message_to_json,
)
from app.domain.tickets.ticket_json import ticket_order, ticket_to_json
from app.domain.tickets.tickets import Ticket, TicketStatus, decided_by_people
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
    """Rules that hold for a thread after every commit."""
    check_thread(rows.events)
    assert [entry.seq for entry in rows.log] == list(range(1, len(rows.log) + 1)), (
        "a gap in the log"
    )
    _check_ranges(rows)
    _check_answers(rows)
    _check_end(rows)
    if not isinstance(rows.record.state, Running):
        _check_every_call_has_a_result(rows)
    if isinstance(rows.record.state, Done):
        assert not rows.calls, "a done run has rows of calls"
        assert not rows.open_tickets, "a done run has open tickets"


def _check_ranges(rows: Rows) -> None:
    record = rows.record
    if record.input is not None:
        assert record.input.range is not None
        input_messages = rows.log[record.input.range.from_seq - 1 : record.input.range.to_seq]
        ids = tuple(entry.message.id for entry in input_messages)
        assert ids == record.input.trigger_message_ids, (
            "the input range has other messages than the record names"
        )
        made = materialize_output(
            rows.log,
            run_id=record.id,
            input=record.input,
            previous=MessageOutput(),
            step_count=record.steps,
        )
        assert made.output == record.output, "the output in the log differs from the record"


def _check_answers(rows: Rows) -> None:
    """Each answer in the log was emitted once, as the log has it; a running run may have emitted the next."""
    logged = [
        logged_message_to_json(entry)
        for entry in rows.log
        if entry.message.role is Role.ASSISTANT and entry.message.run_id == rows.record.id
    ]
    emitted: list[Event] = []
    for event in rows.of_run:
        match event["event_type"]:
            case "message_done":
                emitted.append(event)
            case "stream_reset":
                emitted = [each for each in emitted if each.get("step") != event["step"]]
    messages = [event["message"] for event in emitted]
    assert messages[: len(logged)] == logged, "an answer in the log differs from its event"
    most = len(logged) + isinstance(rows.record.state, Running)
    assert len(messages) <= most, "an answer that was emitted isn't in the log"


def _check_end(rows: Rows) -> None:
    """The last `run_finish` matches the record; a running run has no unmatched `run_finish`."""
    record = rows.record
    boundaries = [
        event for event in rows.of_run if event["event_type"] in ("run_start", "run_finish")
    ]
    match record.state:
        case Created():
            assert not boundaries, "a run has activation events before its claim"
        case Running():
            assert (
                not boundaries or boundaries[-1]["event_type"] == "run_start" or record.attempt > 1
            )
        case Waiting(reason, _):
            finish = boundaries[-1]
            assert finish["termination"] == {"type": "suspended"}, (
                "the run waits and its last finish is not a suspension"
            )
            waiting = finish["waiting"]
            assert waiting["reason"] == reason.value
            people = decided_by_people(rows.open_tickets)
            named = [one for one in waiting["tickets"] if one["id"] in _keys(people)]
            assert named == [ticket_in_finish(ticket) for ticket in people], (
                "the run waits for other tickets than its finish names"
            )
            assert waiting["needs_decision"] or not (people or record.is_paused)
        case Done(termination, _, final_output, _):
            finish = boundaries[-1]
            assert finish["event_type"] == "run_finish", "a done run has no `run_finish`"
            assert finish["termination"] == termination_to_json(termination), (
                "the event and the record have different terminations"
            )
            assert finish["status"] == "done"
            _check_last_words(rows, finish, final_output)


def _check_last_words(rows: Rows, finish: Event, final_output: str | None) -> None:
    """The response of a done run is the assistant's last text, and its lifecycle is done."""
    texts = [
        entry.message.text
        for entry in rows.log
        if entry.message.run_id == rows.record.id and entry.message.role is Role.ASSISTANT
    ]
    entries_of = next((text for text in reversed(texts) if text), "")
    assert finish["result"]["response"] == entries_of, "the response isn't the last text"
    assert final_output == (entries_of or None), "the output isn't the last text"
    extensions = (rows.record.run_state or {}).get("extensions", {})
    assert extensions[LIFECYCLE]["status"] == "done", "the run is done and its lifecycle isn't"


def _keys(tickets: Sequence[Ticket]) -> set[str]:
    return {ticket.id for ticket in tickets}


def _check_every_call_has_a_result(rows: Rows) -> None:
    """In a run that doesn't execute, each call has a result message, so that the next run can start."""
    unanswered: set[str] = set()
    for entry in rows.log:
        message = entry.message
        if message.role is Role.TOOL:
            unanswered.discard(message.tool_call_id or "")
        elif message.tool_calls:
            assert not unanswered, f"calls without a result: {unanswered}"
            unanswered = {call.id for call in message.tool_calls}
    assert not unanswered, f"calls without a result: {unanswered}"


# --- to compare -----------------------------------------------------------------------------------

_TIMES = {"ts", "created_at", "updated_at", "started_at", "finished_at", "applied_at", "at"}
_CHANCE = {
    "worker",
    "streamed",
    "duration_ms",
    "first_token_ms",
    "decision_id",
    "since_dispatch_id",
    "idempotency_key",
    "session_id",
    "active_ms",
    "lost_ms",
}


def check_same(one: Rows, other: Rows) -> None:
    """Two stores have the same rows after the same script."""
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
    """The rows without times, and with ids replaced by the place of their first use."""
    record = rows.record
    whole = {
        "events": list(rows.events),
        "log": [message_to_json(entry.message) for entry in rows.log],
        "record": {
            "state": _state_of(record),
            "input": None if record.input is None else to_builtins(record.input),
            "output": to_builtins(record.output),
            "steps": record.steps,
            "usage": to_builtins(record.usage),
            "run_state": record.run_state,
            "attempt": record.attempt,
            "losses": record.losses,
            "is_unwanted": record.cancel_requested_at is not None,
            "events_from": record.events_from,
        },
        "tickets": [_ticket_of(ticket) for ticket in rows.tickets],
        "thread_state": rows.thread_state,
        "calls": [to_builtins(state) for state in rows.calls],
    }
    return _renamed(json.loads(json.dumps(whole, default=str)), {})


def _state_of(record: RunRecord) -> Any:
    match record.state:
        case Done(termination, _, final_output, _):
            return ["done", termination_to_json(termination), final_output]
        case Waiting(reason, message):
            return ["waiting", reason.value, message]
        case Running(owner):
            return ["running", owner is not None]
        case Created(admitted):
            return ["created", admitted]


def _ticket_of(ticket: Ticket) -> Any:
    answer = None if ticket.decision is None else to_builtins(ticket.decision.answer)
    is_applied = ticket.applied_at is not None
    return [ticket_to_json(ticket), ticket.status.value, answer, is_applied]


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Generated ids become numbers in the order of their first use."""
    match value:
        case dict():
            comparable = {key: one for key, one in value.items() if key not in _TIMES | _CHANCE}
            return {key: _renamed(one, names) for key, one in comparable.items()}
        case list():
            return [_renamed(one, names) for one in value]
        case str() if len(value) == 36 and value.count("-") == 4:
            return names.setdefault(value, f"id {len(names) + 1}")
        case _:
            return value
