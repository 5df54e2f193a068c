"""A small model of the states of each call. It watches an execution and fails when a rule is broken.

asked for ──► allowed ──► marked ──► handed to its tool ──► result, saved once
                 ▲           (each state allows the next one, once; an unsafe call that was
                 └── a person's approval       interrupted by a crash needs a new approval)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.domain.checkpoints import Checkpoint
from app.domain.events.run_events import RunFinish
from app.domain.ids import CallId, RunId, TicketKey
from app.domain.json_values import Json, compact
from app.domain.runs.runs import Done, Running, Waiting
from app.domain.runs.terminations import termination_to_json
from app.domain.threads.messages import Message, Role
from app.domain.tickets.decisions import Action, DecisionAnswer, denial
from app.domain.tickets.tickets import Ticket, TicketKind
from app.domain.tools.tool_calls import (
    INTERRUPTED,
    CallStatus,
    Effect,
    ToolResult,
    idempotency_key,
    result_of_response,
)
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.tool_context import ToolContext
from tests.support.team import TEAM

_RUNS_THE_TOOL = (Action.APPROVE, Action.EDIT)


@dataclass(slots=True)
class Call:
    """One call and its current state."""

    name: str
    asked_with: Json
    arguments: Json
    """The effective arguments: those of the model, or those of an `edit` decision."""
    effect: Effect
    position: int
    may_run: bool
    is_marked: bool = False
    was_handed: bool = False
    asked_itself: bool = False
    answer: DecisionAnswer | None = None
    result: ToolResult | None = None
    """The result that its tool returned and no checkpoint has saved yet."""
    saved_result: ToolResult | None = None
    """A result that a checkpoint saved, and that enters the log in the order of the calls."""
    outcome: str | None = None
    """The text of its result in the log."""
    shown: tuple[Json, ...] = ()
    """The arguments that a model may read; both versions if the call may have run."""

    @property
    def known(self) -> ToolResult | None:
        """Its result, saved or not."""
        return self.result or self.saved_result


@dataclass(slots=True)
class Reference:
    """`tools` are all tools with their effect; `gated` are those that need approval."""

    tools: dict[str, Effect]
    gated: frozenset[str]
    passes: frozenset[int] = frozenset()
    """The steps after which the run is handed to the other agent."""
    is_parallel: bool = False
    steps: int = 0
    calls: dict[str, Call] = field(default_factory=dict)
    tickets: dict[TicketKey, Ticket] = field(default_factory=dict)
    answers: dict[TicketKey, DecisionAnswer] = field(default_factory=dict)
    applied: set[TicketKey] = field(default_factory=set)

    # --- observations ---------------------------------------------------------------------------

    def asked(self, agent: str, request: ModelRequest) -> None:
        """A model sees each call with its effective arguments, and exactly one result right after it."""
        passed_on = sum(step < self.steps for step in self.passes)
        assert agent == TEAM[passed_on % 2], "another agent is active"
        unanswered = self.tickets.keys() - self.answers.keys()
        assert not unanswered, "a model is asked while tickets are open"
        expected: list[tuple[Call, CallId]] = []
        for message in request.messages:
            if message.role is Role.TOOL:
                assert expected, "a result of no call"
                call, call_id = expected.pop(0)
                assert message.tool_call_id == call_id, "results in another order than their calls"
                assert message.text == call.outcome, "a model reads another result than was saved"
                continue
            assert not expected, f"calls without a result: {expected}"
            for shown in message.tool_calls:
                call = self.calls[_key(message, shown.id)]
                assert shown.arguments in call.shown, "a model reads other arguments than ran"
                expected.append((call, shown.id))
        assert not expected, f"calls without a result: {expected}"

    def handed(self, arguments: Json, context: ToolContext) -> None:
        call = self.calls[context.idempotency_key]
        assert call.outcome is None, "a finished call is executed again"
        assert call.saved_result is None, "a call runs again although its result is saved"
        assert call.is_marked, "a call runs that no commit has marked"
        assert call.may_run, "a call runs without approval, or more often than approved"
        assert arguments == call.arguments, "a call runs with other arguments"
        answer = call.answer
        given = answer.result if answer is not None and answer.action is Action.APPROVE else None
        assert context.resume_input == given, (
            "a call gets another decision than the one that was made"
        )
        call.is_marked, call.was_handed = False, True
        call.may_run = call.effect.may_be_rerun

    def returned(self, result: ToolResult, context: ToolContext) -> None:
        self.calls[context.idempotency_key].result = result

    def lost(self) -> None:
        """The worker is lost, with all results that were not saved."""
        for call in self.calls.values():
            call.result = None

    def decided(self, ticket: Ticket, answer: DecisionAnswer) -> None:
        self.answers[ticket.id] = answer
        call = self._of_ticket(ticket)
        call.answer = answer
        call.may_run = answer.action in _RUNS_THE_TOOL
        if answer.action is Action.EDIT:
            call.arguments = answer.arguments

    def committed(self, checkpoint: Checkpoint) -> None:
        for message in checkpoint.messages:
            self._learn_calls(checkpoint.run_id, message)
        for ticket in checkpoint.opened:
            self._open(ticket)
        for key in checkpoint.applied:
            assert key in self.answers, "a decision is applied that was never made"
            assert key not in self.applied, "a decision is applied twice"
            self.applied.add(key)
        for state in checkpoint.calls:
            call = self.calls[state.idempotency_key]
            if state.unreported_result is not None:
                assert state.unreported_result in (call.result, call.saved_result), (
                    "another result is saved"
                )
                call.saved_result, call.result = state.unreported_result, None
            elif state.status is CallStatus.RUNNING:
                call.is_marked = True
        placeholders = {ticket.call_id for ticket in checkpoint.opened}
        for message in checkpoint.messages:
            if message.role is Role.TOOL and message.tool_call_id not in placeholders:
                self._settle(message, ends=isinstance(checkpoint.state, Done))
        self._check_finish(checkpoint)
        self.steps = checkpoint.steps
        if isinstance(checkpoint.state, Done):
            self._check_end(checkpoint.state)
            self.steps = 0

    def execution_ended(self) -> None:
        """A worker ended its execution regularly, so each result must be saved."""
        unsaved = [call for call in self.calls.values() if call.result is not None]
        assert not unsaved, f"results that were not saved: {unsaved}"

    def ended_while_idle(self, appended: Sequence[Message]) -> None:
        """A command ended the idle run: its open calls are interrupted."""
        for message in appended:
            self._settle(message, ends=True)
        open_calls = [call for call in self.calls.values() if call.outcome is None]
        assert not open_calls, f"done, with calls that have no result: {open_calls}"
        self.tickets.clear()
        self.answers.clear()
        self.steps = 0

    # --- rules ----------------------------------------------------------------------------------

    def _learn_calls(self, run_id: RunId, message: Message) -> None:
        assert message.run_id in (run_id, None), "a message of another run"
        for position, asked in enumerate(message.tool_calls):
            key = _key(message, asked.id)
            assert key not in self.calls, "one call is asked for twice"
            self.calls[key] = Call(
                name=asked.name,
                asked_with=asked.arguments,
                arguments=asked.arguments,
                effect=self.tools.get(asked.name, Effect.UNSAFE),
                position=position,
                may_run=asked.name in self.tools and asked.name not in self.gated,
            )

    def _open(self, ticket: Ticket) -> None:
        self.tickets[ticket.id] = ticket
        call = self._of_ticket(ticket)
        assert call.outcome is None, "a question about a finished call"
        match ticket.kind:
            case TicketKind.APPROVAL:
                assert call.name in self.gated, "this tool needs no approval"
                assert not call.was_handed, "this call was approved before"
            case TicketKind.INPUT:
                assert call.known is not None, "the tool returned nothing"
                assert call.known.suspension is not None, "the tool opened no question"
                call.asked_itself = True
            case TicketKind.OUTCOME_UNKNOWN:
                assert not call.effect.may_be_rerun, (
                    "a ticket is opened for a call that may be rerun"
                )
                assert call.is_marked or call.was_handed, "its outcome is known: it never began"
            case _:
                raise AssertionError(f"a ticket of kind {ticket.kind}")
        call.may_run = call.is_marked = False
        call.result = call.saved_result = None

    def _settle(self, message: Message, *, ends: bool) -> None:
        assert message.tool_call_id is not None
        call = self.calls[_key(message, message.tool_call_id)]
        assert call.outcome is None, "a call gets a second result"
        call.outcome = message.text
        is_known = call.known is not None or not (call.is_marked or call.was_handed)
        effective_arguments = call.arguments if call.known is not None else call.asked_with
        call.shown = (effective_arguments,) if is_known else (effective_arguments, call.arguments)
        expected = self._expected(call, message)
        if ends and (call.known is None or call.known.suspension is not None):
            expected.add(INTERRUPTED)
        assert message.text in expected, f"{message.text!r} instead of one of {expected}"
        call.result = call.saved_result = None

    def _expected(self, call: Call, message: Message) -> set[str]:
        if call.known is not None:
            return {call.known.text}
        if call.answer is not None and call.answer.action not in _RUNS_THE_TOOL:
            return {_result_of(call.name, call.answer)}
        before = [one for one in self._neighbours(message) if one.position < call.position]
        stops = any(one.asked_itself for one in before) and not self.is_parallel
        if stops and not call.was_handed:
            return {INTERRUPTED}
        if call.name not in self.tools:
            return {f"tool '{call.name}' not found"}
        if not isinstance(call.arguments, dict):
            return {"Invalid arguments: an object is needed"}
        return set()

    def _check_finish(self, checkpoint: Checkpoint) -> None:
        finishes = [
            pending.event
            for pending in checkpoint.pending_events
            if isinstance(pending.event, RunFinish)
        ]
        if isinstance(checkpoint.state, Running):
            assert not finishes, "a running run has a `run_finish`"
            return
        assert len(finishes) == 1, "an activation needs exactly one `run_finish`"
        assert checkpoint.pending_events[-1].event is finishes[0], "an event after `run_finish`"
        match checkpoint.state:
            case Waiting():
                open_ones = self.tickets.keys() - self.answers.keys()
                waiting = finishes[0].waiting
                assert waiting is not None
                assert {one["id"] for one in waiting["tickets"]} == open_ones, (
                    "the run waits for other tickets than the open ones"
                )
            case Done(termination):
                assert finishes[0].termination == termination_to_json(termination), (
                    "the event and the record have different terminations"
                )

    def _check_end(self, state: Done) -> None:
        if termination_to_json(state.termination)["type"] not in ("cancelled", "error"):
            assert self.applied >= self.answers.keys(), "a decision was lost"
            assert not self.tickets.keys() - self.answers.keys(), "done with open tickets"
        open_calls = [call for call in self.calls.values() if call.outcome is None]
        assert not open_calls, f"done, with calls that have no result: {open_calls}"
        self.tickets.clear()
        self.answers.clear()

    def _of_ticket(self, ticket: Ticket) -> Call:
        assert ticket.call_id is not None
        return self.calls[idempotency_key(ticket.run_id, ticket.step_index, ticket.call_id)]

    def _neighbours(self, message: Message) -> list[Call]:
        prefix = idempotency_key(RunId(message.run_id or ""), message.step_index or 0, CallId(""))
        return [call for key, call in self.calls.items() if key.startswith(prefix)]


def _key(message: Message, call_id: CallId) -> str:
    assert message.run_id is not None
    assert message.step_index is not None
    return idempotency_key(message.run_id, message.step_index, call_id)


def _result_of(name: str, answer: DecisionAnswer) -> str:
    """The text that a model reads when a decision replaces the tool's result."""
    match answer.action:
        case Action.REJECT:
            return denial(answer)
        case Action.RESPOND:
            return result_of_response(name, answer.result).text
        case _:
            given = answer.result if answer.result is not None else answer.reason
            return given if isinstance(given, str) else compact(given)
