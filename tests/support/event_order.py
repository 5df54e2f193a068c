"""Checks the order of events that every reader may rely on.

Numbers: within a thread 1, 2, 3 …; on a run's stream the same numbers, growing. Within an activation:
`run_start` first, exactly one `run_finish`, last; steps never interleave, are counted without gap and
end with the state; for one call start < delta* < ready < done | resumed; all `ready` of a step before
its `inference_complete`, that before its `message_done`, and that before any `done`; results in the order of their calls, questions
likewise. Before each end, of a run at work or of an idle one: a result for each call, then a state whose
lifecycle is done. Control events may come anywhere, and so may activity of background tasks, which has no step.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, TypeAlias

from app.domain.events.agent_events import COMMAND_EVENTS
from app.domain.runs.runs import LIFECYCLE
from app.domain.tools.tool_calls import INTERRUPTED

Event: TypeAlias = Mapping[str, Any]

_OF_A_STEP = {
    "text_delta",
    "reasoning_delta",
    "tool_call_start",
    "tool_call_delta",
    "tool_call_ready",
    "tool_call_cancel",
    "stream_reset",
    "inference_retry",
    "inference_complete",
    "step_end",
}
_UNCOUNTED_ENDS = {"agent_version_unavailable", "limit_reached", "manual_pause", "rate_limit"}
"""Waiting reasons after which a step starts again under its number."""
_OF_AN_IDLE_END = {"message_done", "tool_call_done", "state_snapshot", "run_finish"}


def check_thread(events: Sequence[Event]) -> None:
    """All events of one thread, from its first on."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "gap in a thread"
    assert len({event["thread_id"] for event in events}) <= 1, "events of several threads"
    by_run: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_run[event["run_id"]].append(event)
    for of_run in by_run.values():
        check_run(of_run)


def check_received(events: Sequence[Event]) -> None:
    """Events that a client received, of any runs and from any position.

    For a run that was joined in the middle it checks only that numbers grow and that it ends once.
    """
    by_run: defaultdict[str, list[Event]] = defaultdict(list)
    before = 0
    for event in events:
        assert event["seq"] > before, f"seq {event['seq']} after {before}"
        before = event["seq"]
        by_run[event["run_id"]].append(event)
    for of_run in by_run.values():
        if of_run[0]["event_type"] == "run_created":
            check_run(of_run)
        else:
            assert not any(map(_is_the_end, of_run[:-1])), "an event after the end"


def _is_the_end(event: Event) -> bool:
    is_finish: bool = event["event_type"] == "run_finish"
    return is_finish and event["termination"]["type"] != "suspended"


def check_run(events: Sequence[Event]) -> None:
    """All events of one run, from its first on."""
    order = _RunOrder()
    before = 0
    for event in events:
        try:
            assert event["seq"] > before, f"seq {event['seq']} after {before}"
            order.collect(event)
        except AssertionError as error:
            received = [f"{one['seq']} {one['event_type']}" for one in events]
            raise AssertionError(f"{error.args[0]} at {event}; received {received}") from None
        before = event["seq"]


class _Phase(Enum):
    NEW = auto()
    SUSPENDED = auto()
    ACTIVE = auto()
    OVER = auto()


class _Call(Enum):
    STARTED = auto()
    READY = auto()
    SUSPENDED = auto()
    OVER = auto()


class _RunOrder:
    """The state of a run, as its events so far show it."""

    def __init__(self) -> None:
        self._phase = _Phase.NEW
        self._step: int | None = None
        self._completed = 0
        self._may_repeat = False
        self._is_stateless = False
        self._inferred = False
        self._has_message = False
        self._cancel_requested = False
        self._is_paused = False
        self._steps_since_pause = 0
        self._waits_for_resume = False
        self._is_unsettled = False
        self._calls: dict[str, _Call] = {}
        self._call_order: list[str] = []
        self._newest: dict[bool, int] = {}
        self._tickets: dict[str, str] = {}
        self._ticket_kinds: dict[str, str] = {}
        self._below: dict[str, bool] = {}
        """Whether the tickets of runs below it are open."""
        self._lifecycle: Mapping[str, Any] = {}
        self._last = ""

    def collect(self, event: Event) -> None:
        kind = event["event_type"]
        assert self._phase is not _Phase.OVER, "an event after the end"
        assert (kind == "run_created") == (self._phase is _Phase.NEW), "run_created is first, once"
        if kind in COMMAND_EVENTS:
            self._control(kind, event)
            return
        if kind in ("activity_snapshot", "activity_delta") and "step" not in event:
            return
        if self._phase is _Phase.SUSPENDED and kind in _OF_AN_IDLE_END:
            self._idle_end(kind, event)
            return
        if kind == "run_start":
            assert not self._waits_for_resume, "a paused run was executed"
            assert self._phase is _Phase.SUSPENDED, "run_start within an activation"
            self._phase = _Phase.ACTIVE
        assert self._phase is _Phase.ACTIVE, f"{kind} outside an activation"
        assert event.get("step") == (event["step"] if kind == "step_start" else self._step), (
            "an event of another step"
        )
        assert kind not in _OF_A_STEP or self._step is not None, f"{kind} outside a step"
        assert not self._is_stateless or kind in ("state_snapshot", "run_finish"), (
            "a step that ended without the state"
        )
        handle = getattr(self, f"_{kind}", None)
        if handle is not None:
            handle(event)
        self._last = kind

    def _idle_end(self, kind: str, event: Event) -> None:
        """An idle run ends as an executing one does: its calls, its state, its finish."""
        assert self._cancel_requested, f"{kind} without activation"
        assert "step" not in event, "a step in an idle run"
        match kind:
            case "message_done":
                assert event["message"].get("cut_short"), "a complete answer of an idle run"
                assert self._last not in ("tool_call_done", "state_snapshot"), (
                    "a message after the first event of the end"
                )
            case "tool_call_done":
                assert self._last != "state_snapshot", "a call's result after the state"
                assert event["result"]["status"] == "done", "an idle run ends as suspended"
                assert self._calls.get(event["tool_call_id"]) in (_Call.READY, _Call.SUSPENDED), (
                    "a result of an unknown call"
                )
                self._calls[event["tool_call_id"]] = _Call.OVER
            case "state_snapshot":
                self._state_snapshot(event)
            case _:
                assert event["termination"]["type"] == "cancelled", "only a cancel ends an idle run"
                self._end(event)
                self._phase = _Phase.OVER
        self._last = kind

    def _end(self, event: Event) -> None:
        """What holds before each end, made by a worker or a command."""
        assert self._last == "state_snapshot", "no state before the finish"
        assert self._lifecycle.get("run_id") == event["run_id"], "the state of another run"
        assert self._lifecycle.get("status") == "done", "the run ends and its state isn't done"
        left = {_Call.SUSPENDED, _Call.READY} if self._inferred else {_Call.SUSPENDED}
        unsettled = [id for id, stage in self._calls.items() if stage in left]
        assert not unsettled, f"calls without a result: {unsettled}"
        assert "response" in event["result"], "an end without a response"

    # --- control ----------------------------------------------------------------------------------

    def _control(self, kind: str, event: Event) -> None:
        if "child" in event:
            self._control_below(kind, event)
            return
        match kind:
            case "run_created":
                self._phase = _Phase.SUSPENDED
            case "cancel_requested":
                assert not self._cancel_requested, "a second cancel request"
                self._cancel_requested = True
                self._waits_for_resume = False
            case "pause_requested":
                assert not self._is_paused, "a second pause"
                self._is_paused = True
                self._steps_since_pause = 0
            case "pause_ended":
                assert self._is_paused, "a pause ended that wasn't there"
                self._is_paused = self._waits_for_resume = False
            case "ticket_opened":
                ticket = event["ticket"]
                assert ticket["id"] not in self._tickets, "a ticket opened twice"
                call_id = ticket.get("tool_call_id")
                assert call_id is None or self._calls.get(call_id) is _Call.SUSPENDED, (
                    "whose ticket?"
                )
                self._tickets[ticket["id"]] = "open"
                self._ticket_kinds[ticket["id"]] = ticket["kind"]
            case "ticket_decided":
                assert self._tickets.get(event["ticket_id"]) == "open", "decided, but not open"
                self._tickets[event["ticket_id"]] = "decided"
            case "ticket_expired":
                assert self._tickets.get(event["ticket_id"]) == "open", "expired, but not open"
                self._tickets[event["ticket_id"]] = "expired"
            case "ticket_void":
                assert self._tickets.get(event["ticket_id"]) == "open", "void, but not open"
                self._tickets[event["ticket_id"]] = "void"

    def _control_below(self, kind: str, event: Event) -> None:
        """A ticket of a run below this one: it is opened once and closed once."""
        assert event["child"]["run_id"] != event.get("run_id"), "a child that is the run itself"
        if kind == "ticket_opened":
            ticket = event["ticket"]
            assert ticket["run_id"] == event["child"]["run_id"], "a ticket of another child"
            assert ticket["id"] not in self._below, "a child's ticket opened twice"
            self._below[ticket["id"]] = True
        else:
            assert self._below.get(event["ticket_id"]), "a child's ticket closed, but not open"
            self._below[event["ticket_id"]] = False

    # --- the activation ---------------------------------------------------------------------------

    def _run_finish(self, event: Event) -> None:
        assert self._step is None, "run_finish within a step"
        waiting = event.get("waiting")
        suspended = event["termination"]["type"] == "suspended"
        if not suspended:
            self._end(event)
        assert suspended == (waiting is not None), "an unknown kind of finish"
        assert suspended or event.get("result") is not None, "an end without a result"
        if waiting is not None and waiting["reason"] == "manual_pause":
            assert self._is_paused, "paused without a request"
        still_open = {id for id, status in self._tickets.items() if status == "open"}
        waiting_reasons = set() if waiting is None else {waiting["reason"]}
        if waiting is not None and any(self._ticket_kinds[id] == "limit" for id in still_open):
            waiting_reasons.add("limit_reached")
        if "agent_version_unavailable" not in waiting_reasons:
            assert self._last == "state_snapshot", "no state before the finish"
        if not waiting_reasons & _UNCOUNTED_ENDS:
            assert not self._is_stateless, "a step that ended without the state"
            self._may_repeat = False
            failed = event["termination"]["type"] == "error"
            assert failed or not self._is_unsettled, "a call without result"
        if waiting is not None:
            # A decision that was committed before the finish has a smaller seq.
            asked = {id for id in still_open if self._ticket_kinds[id] not in ("child", "event")}
            named = {ticket["id"] for ticket in waiting["tickets"]}
            below = {ticket["id"] for ticket in waiting["tickets"] if "child" in ticket}
            assert named - below == asked, "the finish names other tickets than the open ones"
            # A decision below may be known before the stream shows it.
            assert all(self._below.get(id) for id in below), (
                "the finish names a ticket below that isn't open"
            )
            assert waiting["needs_decision"] is (bool(named) or self._is_paused), (
                "the finish says wrongly who has to act"
            )
        self._waits_for_resume = self._is_paused and not self._cancel_requested
        self._phase = _Phase.SUSPENDED if suspended else _Phase.OVER
        self._is_stateless = False

    def _state_snapshot(self, event: Event) -> None:
        self._lifecycle = event["snapshot"]["extensions"].get(LIFECYCLE, {})

    def _step_start(self, event: Event) -> None:
        assert self._step is None, "a step within a step"
        number = event["step"]
        again = self._may_repeat and number == self._completed
        assert number == self._completed + 1 or again, f"step {number} after {self._completed}"
        self._steps_since_pause += self._is_paused
        assert self._steps_since_pause <= 1, "a paused run went beyond a step border"
        self._step = number
        self._inferred = self._has_message = again and bool(self._calls)
        assert again or not self._is_unsettled, "a call without result"
        if not again:
            self._forget_calls()
        self._may_repeat = False

    def _step_end(self, _: Event) -> None:
        assert self._has_message or not self._inferred, "no message for its inference"
        self._is_unsettled = self._inferred and _Call.READY in self._calls.values()
        # A step that suspends before it is complete starts again, so it is not counted yet.
        self._may_repeat = self._is_stateless = self._last != "state_snapshot"
        self._completed = self._step or 0
        self._step = None

    def _stream_reset(self, _: Event) -> None:
        self._forget_calls()
        self._inferred = self._has_message = False

    def _forget_calls(self) -> None:
        self._calls, self._call_order, self._newest = {}, [], {}

    # --- inference and tools ----------------------------------------------------------------------

    def _text_delta(self, _: Event) -> None:
        assert not self._inferred, "text after the inference"
        assert not self._has_message, "text after its message"

    _reasoning_delta = _text_delta
    _inference_retry = _text_delta

    def _tool_call_start(self, event: Event) -> None:
        assert not self._inferred, "a call after the inference"
        assert not self._has_message, "a call after its message"
        assert event["tool_call_id"] not in self._calls, "a call started twice"
        self._calls[event["tool_call_id"]] = _Call.STARTED

    def _tool_call_delta(self, event: Event) -> None:
        assert self._calls.get(event["tool_call_id"]) is _Call.STARTED, (
            "arguments of a call that is not open"
        )

    def _tool_call_ready(self, event: Event) -> None:
        assert self._calls.get(event["tool_call_id"]) is _Call.STARTED, "ready, but not started"
        assert not self._inferred, "ready after the inference"
        self._calls[event["tool_call_id"]] = _Call.READY
        self._call_order.append(event["tool_call_id"])

    def _tool_call_cancel(self, event: Event) -> None:
        assert self._calls.pop(event["tool_call_id"], None) is _Call.STARTED, (
            "cancelled, but not open"
        )

    def _inference_complete(self, _: Event) -> None:
        assert not self._inferred, "a second inference in a step"
        assert not self._has_message, "a message before its inference is complete"
        self._inferred = True

    def _message_done(self, event: Event) -> None:
        message = event["message"]
        assert message["role"] == "assistant", "a message of another role"
        is_cut = message.get("cut_short") is not None
        assert is_cut or self._step is not None, "a complete message outside a step"
        if self._step is None:
            return
        assert not self._has_message, "a second message in a step"
        self._has_message = True
        if is_cut:
            assert not message.get("tool_calls"), "a cut message with calls"
            return
        made = [call["tool_call_id"] for call in message.get("tool_calls", [])]
        assert made == self._call_order, "a message with other calls than the ready ones"
        assert self._inferred or not made, "calls before their inference is complete"

    def _tool_call_stream_delta(self, event: Event) -> None:
        assert self._calls.get(event["tool_call_id"]) in (_Call.READY, _Call.SUSPENDED), (
            "output of an unknown call"
        )

    def _tool_call_done(self, event: Event) -> None:
        stage = self._calls.get(event["tool_call_id"])
        assert stage in (_Call.READY, _Call.SUSPENDED), "done, but not ready, or twice"
        assert self._inferred or self._step is None, "done before the inference is complete"
        assert self._has_message or self._step is None, "done before the message of its call"
        suspended = event["result"]["status"] == "waiting"
        self._calls[event["tool_call_id"]] = _Call.SUSPENDED if suspended else _Call.OVER
        was_interrupted = event["result"].get("text") == INTERRUPTED
        # A ticket that is never opened, because the run ends, is settled after the calls with results.
        if self._step is not None and not was_interrupted:
            place = self._call_order.index(event["tool_call_id"])
            assert place > self._newest.get(suspended, -1), "done before a call that came first"
            self._newest[suspended] = place

    def _tool_call_resumed(self, event: Event) -> None:
        stage = self._calls.get(event["tool_call_id"])
        assert stage is _Call.SUSPENDED, "resumed, but not suspended"
        self._calls[event["tool_call_id"]] = _Call.OVER
