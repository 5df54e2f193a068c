"""A run in memory: what a test can see of it, and what the person in the test can do."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from app.domain.agents.specs import AgentSpec
from app.domain.errors import ConfigurationError
from app.domain.json_values import Json, JsonObject
from app.domain.runs.runs import CONTEXT, Done, Waiting
from app.domain.runs.terminations import outcome, termination_to_json
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.ticket_json import ticket_order
from app.domain.tickets.tickets import Ticket, TicketKind, TicketStatus, can_resume
from app.runtime.agent import Agents, ResolvedAgent, UnknownAgentVersion
from app.runtime.cancellation import Interruption
from app.runtime.handoff import active_agent
from app.runtime.ports.models import ModelRequest
from app.runtime.state import StateKey, StateStore
from app.testing.journal import MemoryJournal
from app.testing.memory_thread import MemoryThread
from app.testing.scripts import ScriptedAnswers, Turn
from app.testing.tool_files import SavedFile
from app.tools.schemas.validate import build_validator

V = TypeVar("V")


class OpenTicket(Struct, frozen=True):
    """One question that the run waits for."""

    kind: str
    tool: str
    arguments: Json
    message: str
    allowed_actions: frozenset[str]


class ToolCallMade(Struct, frozen=True):
    """One tool call of the model. `result` is what the model reads; None while the call waits."""

    tool: str
    arguments: Json
    result: str | None


class AgentRun:
    """A run in memory, and the person who answers its tickets. Each answer executes the run further."""

    def __init__(
        self,
        spec: AgentSpec,
        agents: Agents,
        answers: ScriptedAnswers,
        metadata: JsonObject,
        context: JsonObject,
        memories: Mapping[str, Json],
    ) -> None:
        self._agents = agents
        self._answers = answers
        self._thread = MemoryThread(spec, subject="tester", memories=memories)
        self._metadata = metadata
        self._request: JsonObject = {CONTEXT: context} if context else {}
        self._has_run = False

    # --- what can be seen -----------------------------------------------------------------------

    @property
    def status(self) -> str:
        """`waiting` or `done`."""
        return self._thread.record.status.value

    @property
    def waiting_reason(self) -> str | None:
        """Why the run waits, in the words of its record: `tool_permission`, `rate_limit`, `manual_pause`, …"""
        state = self._thread.record.state
        return state.reason.value if isinstance(state, Waiting) else None

    @property
    def outcome(self) -> str | None:
        """`succeeded`, `failed`, …; None while the run waits."""
        state = self._thread.record.state
        return outcome(state.termination).value if isinstance(state, Done) else None

    @property
    def termination(self) -> JsonObject | None:
        """How the run ended, in the words of its record; None while the run waits."""
        state = self._thread.record.state
        return termination_to_json(state.termination) if isinstance(state, Done) else None

    @property
    def response(self) -> str | None:
        """The run's answer: the last text of its model. None while the run waits."""
        state = self._thread.record.state
        return state.final_output if isinstance(state, Done) else None

    @property
    def structured_output(self) -> JsonObject | None:
        """The run's answer as data, if the agent has an `output`. None while the run waits."""
        state = self._thread.record.state
        return state.structured_output if isinstance(state, Done) else None

    @property
    def tickets(self) -> tuple[OpenTicket, ...]:
        """The open tickets."""
        return tuple(
            OpenTicket(
                kind=ticket.kind.value,
                tool=ticket.tool_name,
                arguments=ticket.arguments,
                message=ticket.message,
                allowed_actions=frozenset(action.value for action in ticket.allowed_actions),
            )
            for ticket in self._open_tickets()
        )

    def waiting_for(self, tool: str) -> bool:
        """Whether a ticket about a call of this tool is open."""
        return any(ticket.tool_name == tool for ticket in self._open_tickets())

    @property
    def calls(self) -> tuple[ToolCallMade, ...]:
        """The tool calls of this run, in their order."""
        results: dict[str, Message] = {}
        for message in self.messages:
            if message.role is Role.TOOL and message.tool_call_id is not None:
                results[message.tool_call_id] = message
        waiting = {ticket.call_id for ticket in self._open_tickets()}
        made = []
        for each in [one for message in self.messages for one in message.tool_calls]:
            result = results.get(each.id)
            edited = None if result is None else result.edited_arguments
            made.append(
                ToolCallMade(
                    tool=each.name,
                    arguments=each.arguments if edited is None else edited,
                    result=None if result is None or each.id in waiting else result.text,
                )
            )
        return tuple(made)

    @property
    def artifacts(self) -> tuple[SavedFile, ...]:
        """The files that the tools of this run have saved, oldest first."""
        return self._thread.files.of_run(self._thread.record.id)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that this run has read and written."""
        run = self._thread.record
        triggers = () if run.input is None else run.input.trigger_message_ids
        log = [entry.message for entry in self._thread.log]
        return tuple(one for one in log if one.run_id == run.id or one.id in triggers)

    @property
    def memories(self) -> Mapping[str, Json]:
        """What the agent keeps across runs, by key."""
        return self._thread.memories.values()

    @property
    def events(self) -> tuple[JsonObject, ...]:
        """The events of the thread, as its stream shows them."""
        return tuple(self._thread.events)

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The requests that the model received."""
        return tuple(self._answers.requests)

    def state(self, key: StateKey[V, Any]) -> V:
        """A value of the state of this run, or of its thread."""
        stored = (self._thread.record.run_state or {}).get("extensions", {})
        values: Mapping[str, Any] = {**stored, **self._thread.thread_state}
        store = StateStore([key])
        store.restore(key.scope, {name: values[name] for name in (key.name,) if name in values})
        return store.snapshot.get(key)

    # --- what a person can do -------------------------------------------------------------------

    async def approve(self, tool: str | None = None) -> None:
        """Let a call run. `tool` may be left out when only one ticket is open."""
        await self._decide(tool, DecisionAnswer(action=Action.APPROVE))

    async def edit(self, arguments: JsonObject, *, tool: str | None = None) -> None:
        """Let a call run with other arguments."""
        ticket = self._ticket(tool)
        resolved = await self._resolved()
        problem = resolved.tools[ticket.tool_name].invalid_arguments(arguments)
        if problem is not None:
            raise ValueError(f"the edited arguments can't be used: {problem}")
        await self._decide(tool, DecisionAnswer(action=Action.EDIT, arguments=arguments))

    async def respond(self, result: Json, *, tool: str | None = None) -> None:
        """Give a call's result without running its tool; the answer of a delegate, too."""
        ticket = self._ticket(tool)
        if ticket.kind is TicketKind.CHILD:
            report = {**(ticket.evidence or {}), "outcome": "succeeded"}
            report |= {"response": result, "steps": 1}
            await self._apply(ticket, DecisionAnswer(action=Action.RESPOND, result=report))
            return
        if ticket.response_schema is not None:
            problem = build_validator(ticket.response_schema).problem(result)
            if problem is not None:
                raise ValueError(f"the result isn't what the tool asked for: {problem}")
        await self._decide(tool, DecisionAnswer(action=Action.RESPOND, result=result))

    async def reject(self, reason: str | None = None, *, tool: str | None = None) -> None:
        """Deny a call. The model reads the reason."""
        await self._decide(tool, DecisionAnswer(action=Action.REJECT, reason=reason))

    async def cancel_call(self, reason: str | None = None, *, tool: str | None = None) -> None:
        """Cancel a call; the run continues."""
        await self._decide(tool, DecisionAnswer(action=Action.CANCEL, reason=reason))

    async def signal(self, name: str, key: str, payload: Json = None) -> None:
        """Send a signal to the calls that wait for it."""
        waiting = [
            ticket
            for ticket in self._open_tickets()
            if ticket.event is not None and (ticket.event.name, ticket.event.key) == (name, key)
        ]
        if not waiting:
            raise ValueError(f"no call waits for the event {name!r} with the key {key!r}")
        answer = DecisionAnswer(action=Action.RESPOND, result=payload)
        for ticket in waiting:
            if ticket.response_schema is not None:
                problem = build_validator(ticket.response_schema).problem(payload)
                if problem is not None:
                    raise ValueError(f"the call doesn't take this payload: {problem}")
        for ticket in waiting:
            await self._thread.decide(ticket, answer)
        await self._continue()

    async def resume(self) -> None:
        """Resume a run that a plugin has paused, or that waits for a rate limit, now."""
        if self._thread.record.pause is None and self.waiting_reason != "rate_limit":
            raise ValueError("the run is neither paused nor waiting for a rate limit")
        self._thread.record = replace(self._thread.record, pause=None)
        await self._execute()

    async def cancel(self, reason: str | None = None) -> None:
        """Cancel the run."""
        await self._thread.cancel(reason)

    async def send(self, message: str, *, script: Sequence[Turn] = ()) -> None:
        """Start the thread's next run with this message; `script` adds turns for it."""
        if self._has_run and self.status != "done":
            raise ValueError("the run waits: answer its tickets or cancel it first")
        self._has_run = True
        self._answers.extend(script)
        await self._thread.start(
            here=False, text=message, metadata=self._metadata, request=self._request
        )
        await self._execute()

    # --- executing ------------------------------------------------------------------------------

    async def _decide(self, tool: str | None, answer: DecisionAnswer) -> None:
        ticket = self._ticket(tool)
        if answer.action not in ticket.allowed_actions:
            allowed = ", ".join(sorted(ticket.allowed_actions))
            raise ValueError(
                f"the ticket about {ticket.tool_name!r} can't be answered with"
                f" {answer.action.value!r}; allowed are: {allowed}"
            )
        await self._apply(ticket, answer)

    async def _apply(self, ticket: Ticket, answer: DecisionAnswer) -> None:
        await self._thread.decide(ticket, answer)
        await self._continue()

    async def _continue(self) -> None:
        if not self._thread.record.is_paused and can_resume(self._thread.unsettled()):
            await self._execute()

    async def _execute(self) -> None:
        claimed = await self._thread.claim()
        if claimed is None:
            return
        interruption = Interruption()
        journal = MemoryJournal(self._thread, claimed.record.attempt, interruption.abandon)
        agent = await self._resolved()
        await self._thread.advance(
            self._thread.active_run(claimed, agent, self._agents, interruption, journal)
        )

    async def _resolved(self) -> ResolvedAgent:
        record = self._thread.record
        handed_to = active_agent(self._thread.thread_state) if record.run_state else None
        found = await self._agents.at_version(
            *(handed_to or (record.agent_id, record.agent_version))
        )
        if isinstance(found, ResolvedAgent):
            return found
        why = found.reason if isinstance(found, UnknownAgentVersion) else "it is on another server"
        raise ConfigurationError(f"agent {record.agent_id!r} can't be executed in memory: {why}")

    def _open_tickets(self) -> list[Ticket]:
        tickets = self._thread.tickets.values()
        return sorted((t for t in tickets if t.status is TicketStatus.OPEN), key=ticket_order)

    def _ticket(self, tool: str | None) -> Ticket:
        tickets = self._open_tickets()
        found = [each for each in tickets if tool in (None, each.tool_name)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(each.tool_name for each in tickets) or "none"
        raise ValueError(
            f"{len(found)} open tickets fit, but exactly one must; open are tickets about: {names}"
        )
