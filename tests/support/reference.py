"""A small model of what may become of each call: it watches an execution and objects to what may not be.

asked for ──► allowed ──► marked ──► handed to its tool ──► result, saved once
                 ▲           (each allows the next, once; an unsafe call that was lost over needs
                 └── a person's yes                         a new yes)
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
from app.runtime.ports import ModelRequest, ToolContext
from tests.support.team import TEAM

_RUNS_THE_TOOL = (Action.APPROVE, Action.EDIT)


@dataclass(slots=True)
class Call:
    """One call, as far as it has come."""

    name: str
    asked_with: Json
    arguments: Json
    """What it is to run with: as asked for, or as a person has edited it."""
    effect: Effect
    position: int
    may_run: bool
    is_marked: bool = False
    was_handed: bool = False
    asked_itself: bool = False
    answer: DecisionAnswer | None = None
    result: ToolResult | None = None
    """What its tool has returned, until that is saved."""
    kept: ToolResult | None = None
    """A result that is saved, and is told when its turn comes."""
    outcome: str | None = None
    """What the log says came of it."""
    shown: tuple[Json, ...] = ()
    """The arguments that a model may read of it: of a call that may have run, either."""

    @property
    def known(self) -> ToolResult | None:
        """What it came to, told or not."""
        return self.result or self.kept


@dataclass(slots=True)
class Reference:
    """`tools` are those that there are, with their effect; `gated` are those that need a person's yes."""

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

    # --- what is seen ---------------------------------------------------------------------------

    def asked(self, agent: str, request: ModelRequest) -> None:
        """A model sees each call with exactly one result, right behind it, as it was run."""
        passed_on = sum(step < self.steps for step in self.passes)
        assert agent == TEAM[passed_on % 2], "another agent is at work"
        unanswered = self.tickets.keys() - self.answers.keys()
        assert not unanswered, "a model is asked while people are"
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
        assert call.kept is None, "a call runs again whose result is kept"
        assert call.is_marked, "a call runs that no commit has marked"
        assert call.may_run, "a call runs that nobody has allowed, or once more than allowed"
        assert arguments == call.arguments, "a call runs with other arguments"
        answer = call.answer
        given = answer.result if answer is not None and answer.action is Action.APPROVE else None
        assert context.resume_input == given, "a call gets another answer than was given"
        call.is_marked, call.was_handed = False, True
        call.may_run = call.effect.may_be_rerun

    def returned(self, result: ToolResult, context: ToolContext) -> None:
        self.calls[context.idempotency_key].result = result

    def lost(self) -> None:
        """The worker is gone, and with it what nobody has saved."""
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
            assert key in self.answers, "an answer is applied that nobody gave"
            assert key not in self.applied, "an answer is applied twice"
            self.applied.add(key)
        for state in checkpoint.calls:
            call = self.calls[state.idempotency_key]
            if state.unreported is not None:
                assert state.unreported in (call.result, call.kept), "another result is kept"
                call.kept, call.result = state.unreported, None
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

    def came_to_rest(self) -> None:
        """A worker is done with the run, in good order."""
        unsaved = [call for call in self.calls.values() if call.result is not None]
        assert not unsaved, f"results that nobody has saved: {unsaved}"

    def ended_at_rest(self, appended: Sequence[Message]) -> None:
        """A command has ended the run: what was open has been interrupted."""
        for message in appended:
            self._settle(message, ends=True)
        open_calls = [call for call in self.calls.values() if call.outcome is None]
        assert not open_calls, f"done, with calls that have no result: {open_calls}"
        self.tickets.clear()
        self.answers.clear()
        self.steps = 0

    # --- what follows from it -------------------------------------------------------------------

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
                assert call.name in self.gated, "nobody needs to allow this"
                assert not call.was_handed, "somebody has allowed this before"
            case TicketKind.INPUT:
                assert call.known is not None, "the tool has returned nothing"
                assert call.known.suspension is not None, "the tool has asked nothing"
                call.asked_itself = True
            case TicketKind.OUTCOME_UNKNOWN:
                assert not call.effect.may_be_rerun, "may be run again instead of asking"
                assert call.is_marked or call.was_handed, "its outcome is known: it never began"
            case _:
                raise AssertionError(f"a ticket of kind {ticket.kind}")
        call.may_run = call.is_marked = False
        call.result = call.kept = None

    def _settle(self, message: Message, *, ends: bool) -> None:
        assert message.tool_call_id is not None
        call = self.calls[_key(message, message.tool_call_id)]
        assert call.outcome is None, "a call gets a second result"
        call.outcome = message.text
        is_known = call.known is not None or not (call.is_marked or call.was_handed)
        ran_with = call.arguments if call.known is not None else call.asked_with
        call.shown = (ran_with,) if is_known else (ran_with, call.arguments)
        expected = self._expected(call, message)
        if ends and (call.known is None or call.known.suspension is not None):
            expected.add(INTERRUPTED)
        assert message.text in expected, f"{message.text!r} instead of one of {expected}"
        call.result = call.kept = None

    def _expected(self, call: Call, message: Message) -> set[str]:
        if call.known is not None:
            return {call.known.text}
        if call.answer is not None and call.answer.action not in _RUNS_THE_TOOL:
            return {_told(call.name, call.answer)}
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
            said.event for said in checkpoint.pending_events if isinstance(said.event, RunFinish)
        ]
        if isinstance(checkpoint.state, Running):
            assert not finishes, "says that it ends, and goes on"
            return
        assert len(finishes) == 1, "ends with another number of finishes than one"
        assert checkpoint.pending_events[-1].event is finishes[0], "something after the finish"
        match checkpoint.state:
            case Waiting():
                open_ones = self.tickets.keys() - self.answers.keys()
                waiting = finishes[0].waiting
                assert waiting is not None
                assert {one["id"] for one in waiting["tickets"]} == open_ones, "waits for others"
            case Done(termination):
                assert finishes[0].termination == termination_to_json(termination), "another end"

    def _check_end(self, state: Done) -> None:
        if termination_to_json(state.termination)["type"] not in ("cancelled", "error"):
            assert self.applied >= self.answers.keys(), "an answer was lost"
            assert not self.tickets.keys() - self.answers.keys(), "done before people have answered"
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


def _told(name: str, answer: DecisionAnswer) -> str:
    """What a model reads when a person has answered in the tool's place."""
    match answer.action:
        case Action.REJECT:
            return denial(answer)
        case Action.RESPOND:
            return result_of_response(name, answer.result).text
        case _:
            said = answer.result if answer.result is not None else answer.reason
            return said if isinstance(said, str) else compact(said)
