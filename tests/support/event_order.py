"""The order of events that every reader may rely on, checked over what one has read.

Numbers: within a thread 1, 2, 3 …; on a run's stream the same numbers, growing. Within an activation:
`run_start` first, exactly one `run_finish`, last; steps never interleave, are counted without gap and
end with the state; for one call start < delta* < ready < done | resumed; all `ready` of a step before
its `inference_complete`, and that before any `done`; results in the order of their calls, questions
likewise. Before each end, of a run at work or of an idle one: a result for each call, then a state whose
lifecycle is done. Control events may stand anywhere, and so may activity of background tasks, which has no step.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, TypeAlias

from app.domain.events.command_events import COMMAND_EVENTS
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
    "inference_complete",
    "step_end",
}
_UNCOUNTED_ENDS = {"agent_version_unavailable", "limit_reached", "manual_pause", "rate_limit"}
"""Why a run may wait that leaves a step to be begun again under its number."""
_OF_AN_IDLE_END = {"tool_call_done", "state_snapshot", "run_finish"}


def check_thread(events: Sequence[Event]) -> None:
    """All events of one thread, from its first on."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "gap in a thread"
    assert len({event["thread_id"] for event in events}) <= 1, "events of several threads"
    by_run: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_run[event["run_id"]].append(event)
    for of_run in by_run.values():
        check_run(of_run)


def check_heard(events: Sequence[Event]) -> None:
    """What a client has heard, of whatever runs and from wherever on.

    Of a run that was joined in the middle less is known: that its numbers grow, and that it ends once.
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
            assert not any(map(_is_the_end, of_run[:-1])), "something after the end"


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
            order.hear(event)
        except AssertionError as error:
            heard = [f"{one['seq']} {one['event_type']}" for one in events]
            raise AssertionError(f"{error.args[0]} at {event}; heard {heard}") from None
        before = event["seq"]


class _Phase(Enum):
    NEW = auto()
    AT_REST = auto()
    ACTIVE = auto()
    OVER = auto()


class _Call(Enum):
    STARTED = auto()
    READY = auto()
    SUSPENDED = auto()
    OVER = auto()


class _RunOrder:
    """Where a run stands, by what has been heard of it."""

    def __init__(self) -> None:
        self._phase = _Phase.NEW
        self._step: int | None = None
        self._completed = 0
        self._may_repeat = False
        self._is_stateless = False
        self._inferred = False
        self._cancel_wished = False
        self._is_paused = False
        self._steps_since_pause = 0
        self._waits_for_resume = False
        self._is_unsettled = False
        self._calls: dict[str, _Call] = {}
        self._asked: list[str] = []
        self._newest: dict[bool, int] = {}
        self._tickets: dict[str, str] = {}
        self._lifecycle: Mapping[str, Any] = {}
        self._last = ""

    def hear(self, event: Event) -> None:
        kind = event["event_type"]
        assert self._phase is not _Phase.OVER, "something after the end"
        assert (kind == "run_created") == (self._phase is _Phase.NEW), "run_created is first, once"
        if kind in COMMAND_EVENTS:
            self._control(kind, event)
            return
        if kind == "activity_snapshot" and "step" not in event:
            return
        if self._phase is _Phase.AT_REST and kind in _OF_AN_IDLE_END:
            self._idle_end(kind, event)
            return
        if kind == "run_start":
            assert not self._waits_for_resume, "a paused run was executed"
            assert self._phase is _Phase.AT_REST, "run_start within an activation"
            self._phase = _Phase.ACTIVE
        assert self._phase is _Phase.ACTIVE, f"{kind} outside an activation"
        assert event.get("step") == (event["step"] if kind == "step_start" else self._step), (
            "another step"
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
        """A run that nothing executes ends as one at work: its calls, its state, its finish."""
        assert self._cancel_wished, f"{kind} without activation"
        assert "step" not in event, "a step that nothing executes"
        match kind:
            case "tool_call_done":
                assert self._last != "state_snapshot", "a call's result after the state"
                assert event["outcome"] != "suspended", "suspended, and the run ends"
                assert self._calls.get(event["id"]) in (_Call.READY, _Call.SUSPENDED), "whose?"
                self._calls[event["id"]] = _Call.OVER
            case "state_snapshot":
                self._state_snapshot(event)
            case _:
                assert event["termination"]["type"] == "cancelled", "only a cancel ends an idle run"
                self._end(event)
                self._phase = _Phase.OVER
        self._last = kind

    def _end(self, event: Event) -> None:
        """What holds before each end, whoever makes it."""
        assert self._last == "state_snapshot", "no state before the finish"
        assert self._lifecycle.get("run_id") == event["run_id"], "the state of another run"
        assert self._lifecycle.get("status") == "done", "ends, and its state says otherwise"
        left = {_Call.SUSPENDED, _Call.READY} if self._inferred else {_Call.SUSPENDED}
        unsettled = [id for id, stage in self._calls.items() if stage in left]
        assert not unsettled, f"calls without a result: {unsettled}"
        result = event["result"]
        assert {"response", "status", "status_reason"} <= result.keys(), "what result?"

    # --- control ----------------------------------------------------------------------------------

    def _control(self, kind: str, event: Event) -> None:
        match kind:
            case "run_created":
                self._phase = _Phase.AT_REST
            case "cancel_requested":
                assert not self._cancel_wished, "a second wish to cancel"
                self._cancel_wished = True
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
            case "ticket_decided":
                assert self._tickets.get(event["id"]) == "open", "decided, but not open"
                self._tickets[event["id"]] = "decided"
            case "ticket_expired":
                assert self._tickets.get(event["id"]) == "open", "expired, but not open"
                self._tickets[event["id"]] = "expired"
            case "ticket_void":
                assert self._tickets.get(event["id"]) == "open", "void, but not open"
                self._tickets[event["id"]] = "void"

    # --- the activation ---------------------------------------------------------------------------

    def _run_finish(self, event: Event) -> None:
        assert self._step is None, "run_finish within a step"
        waiting = event.get("waiting")
        suspended = event["termination"]["type"] == "suspended"
        if not suspended:
            self._end(event)
        assert suspended == (waiting is not None), "what finish?"
        assert suspended or event.get("result") is not None, "an end without a result"
        if waiting is not None and waiting["reason"] == "manual_pause":
            assert self._is_paused, "paused without a request"
        rests_for = set() if waiting is None else {waiting.get("reason"), waiting.get("message")}
        if "agent_version_unavailable" not in rests_for:
            assert self._last == "state_snapshot", "no state before the finish"
        if not rests_for & _UNCOUNTED_ENDS:
            assert not self._is_stateless, "a step that ended without the state"
            self._may_repeat = False
            failed = event["termination"]["type"] == "error"
            assert failed or not self._is_unsettled, "a call without result"
        if waiting is not None:
            still_open = {id for id, status in self._tickets.items() if status == "open"}
            # An answer that came before the finish was numbered first, and is seen before it.
            assert {ticket["id"] for ticket in waiting["tickets"]} == still_open, "which tickets?"
        self._waits_for_resume = self._is_paused and not self._cancel_wished
        self._phase = _Phase.AT_REST if suspended else _Phase.OVER
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
        self._inferred = again and bool(self._calls)
        assert again or not self._is_unsettled, "a call without result"
        if not again:
            self._forget_calls()
        self._may_repeat = False

    def _step_end(self, _: Event) -> None:
        self._is_unsettled = self._inferred and _Call.READY in self._calls.values()
        # A step that rests without being complete is begun again: nothing of it is counted yet.
        self._may_repeat = self._is_stateless = self._last != "state_snapshot"
        self._completed = self._step or 0
        self._step = None

    def _stream_reset(self, _: Event) -> None:
        self._forget_calls()
        self._inferred = False

    def _forget_calls(self) -> None:
        self._calls, self._asked, self._newest = {}, [], {}

    # --- inference and tools ----------------------------------------------------------------------

    def _text_delta(self, _: Event) -> None:
        assert not self._inferred, "text after the inference"

    _reasoning_delta = _text_delta

    def _tool_call_start(self, event: Event) -> None:
        assert not self._inferred, "a call after the inference"
        assert event["id"] not in self._calls, "a call started twice"
        self._calls[event["id"]] = _Call.STARTED

    def _tool_call_delta(self, event: Event) -> None:
        assert self._calls.get(event["id"]) is _Call.STARTED, "arguments of no open call"

    def _tool_call_ready(self, event: Event) -> None:
        assert self._calls.get(event["id"]) is _Call.STARTED, "ready, but not started"
        assert not self._inferred, "ready after the inference"
        self._calls[event["id"]] = _Call.READY
        self._asked.append(event["id"])

    def _tool_call_cancel(self, event: Event) -> None:
        assert self._calls.pop(event["id"], None) is _Call.STARTED, "taken back, but not open"

    def _inference_complete(self, _: Event) -> None:
        assert not self._inferred, "a second inference in a step"
        self._inferred = True

    def _tool_call_stream_delta(self, event: Event) -> None:
        assert self._calls.get(event["id"]) in (_Call.READY, _Call.SUSPENDED), "output of no call"

    def _tool_call_done(self, event: Event) -> None:
        stage = self._calls.get(event["id"])
        assert stage in (_Call.READY, _Call.SUSPENDED), "done, but not ready, or twice"
        assert self._inferred or self._step is None, "done before the inference is complete"
        suspended = event["outcome"] == "suspended"
        self._calls[event["id"]] = _Call.SUSPENDED if suspended else _Call.OVER
        was_interrupted = event.get("result", {}).get("message") == INTERRUPTED
        # A question that is never asked, because the run ends, is settled after what had a result.
        if self._step is not None and not was_interrupted:
            place = self._asked.index(event["id"])
            assert place > self._newest.get(suspended, -1), "done before a call that came first"
            self._newest[suspended] = place

    def _tool_call_resumed(self, event: Event) -> None:
        stage = self._calls.get(event["target_id"])
        assert stage is _Call.SUSPENDED, "resumed, but not suspended"
        self._calls[event["target_id"]] = _Call.OVER
