"""Plays one thread: starts runs, kills workers, takes runs over, decides tickets, cancels, and finishes runs.

All incidents are plain data, so that a failure can be replayed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from app.domain.agents.specs import AgentSpec, ToolExecution
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.errors import OwnershipLost
from app.domain.runs.runs import Running, Waiting
from app.domain.runs.terminations import WORKER_LOST
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import Ticket
from app.llm.scripted.model import ScriptedText, ScriptedTurn, turn
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.endings import Ending, HandedOver, RunFinished, Suspended
from app.runtime.handoff import active_agent
from app.runtime.loop import fail_claimed
from app.runtime.ports.models import ModelRequest
from app.workers.liveness.poison_guard import MAX_LOSSES
from tests.support.reference import Reference
from tests.support.team import Team
from tests.support.thread_rows import Rows, check_rows
from tests.support.watching import Stimulus, Watch, WatchableEmitter, WatchedTool, watch_over

Fault: TypeAlias = Callable[[ActiveRun], None]
"""A seeded fault, put into every execution between the loop and its ports."""


def no_fault(_: ActiveRun) -> None:
    """The loop without a fault."""


class SystemUnderTest(Protocol):
    """A thread in memory or in Postgres."""

    @property
    def is_real(self) -> bool: ...
    async def start(self, *, here: bool) -> ClaimedRun | None: ...
    async def claim(self) -> ClaimedRun | None: ...
    async def decide(self, ticket: Ticket, answer: DecisionAnswer) -> None: ...
    async def cancel(self, reason: str | None) -> None: ...
    async def load(
        self,
        claimed: ClaimedRun,
        agent: ResolvedAgent,
        agents: Agents,
        interruption: Interruption,
    ) -> tuple[ActiveRun, WatchableEmitter]: ...
    async def advance(self, run: ActiveRun) -> Ending: ...
    async def rows(self) -> Rows: ...


class IncidentKind(StrEnum):
    KILL = "kill"
    TAKE_OVER = "take over"
    """Another worker claims the run; this one doesn't know."""
    CANCEL = "cancel"
    CANCEL_UNNOTICED = "cancel unnoticed"
    """The cancel request is committed, and its notification does not reach the worker."""
    HAND_OVER = "hand over"
    HAND_OVER_NOW = "hand over now"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Reply:
    """A decision about one of the open tickets; `which` counts modulo their number."""

    which: int
    action: Action

    def to(self, ticket: Ticket) -> DecisionAnswer:
        allowed = sorted(ticket.allowed_actions)
        action = self.action if self.action in allowed else Action(allowed[0])
        word = f"{action.value} {ticket.call_id}"
        match action:
            case Action.EDIT:
                return DecisionAnswer(action=action, arguments={"edited": word})
            case Action.REJECT:
                return DecisionAnswer(action=action, reason=word)
            case Action.CANCEL:
                return DecisionAnswer(action=action, reason=word)
            case _:
                return DecisionAnswer(action=action, result={"said": word})


@dataclass(frozen=True, slots=True)
class Incident:
    """What happens at one point of an execution.

    With `hangs`, the work at that point lasts until a stop request interrupts it.
    """

    at: int
    kind: IncidentKind
    hangs: bool = False
    reply: Reply = Reply(0, Action.APPROVE)


class ThreadDriver:
    def __init__(
        self,
        system: SystemUnderTest,
        spec: AgentSpec,
        tools: Mapping[str, WatchedTool],
        *,
        fault: Fault = no_fault,
    ) -> None:
        self.system = system
        self.reference = Reference(
            {name: tool.effect for name, tool in tools.items()}, frozenset(spec.approval)
        )
        self._spec = spec
        self._tools = tools
        self._fault = fault
        self._turns: list[ScriptedTurn] = []
        self._passes: frozenset[int] = frozenset()
        self._mode = ToolExecution.SEQUENTIAL
        self._claimed: ClaimedRun | None = None

    # --- actions --------------------------------------------------------------------------------

    async def start(
        self,
        turns: Sequence[ScriptedTurn],
        *,
        here: bool,
        passes: Iterable[int] = (),
        parallel: bool = False,
    ) -> None:
        self._turns = list(turns)
        self._passes = self.reference.passes = frozenset(passes)
        self._mode = ToolExecution.PARALLEL if parallel else ToolExecution.SEQUENTIAL
        self.reference.is_parallel = parallel
        self._claimed = await self.system.start(here=here)

    async def execute(self, incidents: Sequence[Incident] = (), *, is_eager: bool = True) -> int:
        """Execute the run until it ends, suspends or loses its worker. Returns the number of points passed."""
        claimed = self._claimed or await self.system.claim()
        self._claimed = None
        if claimed is None:
            return 0
        stimuli = {incident.at: self._stimulus(incident) for incident in incidents}
        watch = Watch(self.reference, stimuli, is_eager)
        team = Team(self._spec, self._tools, self._script, self._passes, self._mode, watch)
        handed_to = active_agent(claimed.thread_state) if claimed.record.run_state else None
        agent = await team.at_version(*(handed_to or (self._spec.id, None)))
        assert isinstance(agent, ResolvedAgent)
        run, emitter = await self.system.load(claimed, agent, team, watch.interruption)
        watch_over(run, watch, self._tools.values(), emitter)
        self._fault(run)
        if claimed.record.cancel_requested_at is not None:
            watch.interruption.cancel("unwanted")
        try:
            ending = await watch.run(self._carry_out(run))
        except OwnershipLost:
            ending = None
            assert self._claimed is not None, "ownership was lost without another claim"
        self._check_ending(ending, watch)
        self.reference.lost()
        return watch.points

    async def decide(self, reply: Reply) -> bool:
        """Answer one of the open tickets; False when there is none."""
        open_ones = (await self.system.rows()).open_tickets
        if not open_ones:
            return False
        ticket = open_ones[reply.which % len(open_ones)]
        answer = reply.to(ticket)
        await self.system.decide(ticket, answer)
        self.reference.decided(ticket, answer)
        return True

    async def cancel(self) -> None:
        before = await self.system.rows()
        await self.system.cancel("unwanted")
        after = await self.system.rows()
        if after.record.is_done and not before.record.is_done:
            self.reference.ended_while_idle([e.message for e in after.log[len(before.log) :]])

    async def settle(self) -> Rows:
        """Execute the run to its end without incidents; approve each open ticket."""
        for _ in range(40):
            rows = await self.system.rows()
            check_rows(rows)
            if rows.record.is_done:
                return rows
            if isinstance(rows.record.state, Waiting) and not rows.has_answer:
                unwanted = rows.record.cancel_requested_at is not None
                assert unwanted or rows.open_tickets, (
                    "the run waits without a ticket or a cancel request"
                )
                if not unwanted:
                    await self.decide(Reply(0, Action.APPROVE))
                    continue
            await self.execute()
        raise AssertionError("the run doesn't end")

    # --- implementation -------------------------------------------------------------------------

    async def _carry_out(self, run: ActiveRun) -> Ending:
        if run.record.losses > MAX_LOSSES:
            return await fail_claimed(run, WORKER_LOST, "too many")
        return await self.system.advance(run)

    def _script(self, request: ModelRequest) -> ScriptedTurn:
        """The next turn. A turn that a lost worker got is not repeated."""
        return self._turns.pop(0) if self._turns else turn(ScriptedText(("That ", "is all.")))

    def _check_ending(self, ending: Any, watch: Watch) -> None:
        match ending:
            case RunFinished() | Suspended():
                assert self._claimed is None, "a worker ended a run that it no longer owns"
                self.reference.execution_ended()
            case HandedOver():
                self.reference.execution_ended()
            case None:
                assert watch.is_dead or self._claimed is not None

    async def _take_over(self) -> None:
        rows = await self.system.rows()
        if self._claimed is None and isinstance(rows.record.state, Running):
            self._claimed = await self.system.claim()
            self.reference.lost()

    def _stimulus(self, incident: Incident) -> Stimulus:
        async def happen(watch: Watch, breakable: bool) -> None:
            breaks = False
            match incident.kind:
                case IncidentKind.KILL:
                    await watch.kill()
                case IncidentKind.TAKE_OVER:
                    await self._take_over()
                case IncidentKind.CANCEL:
                    await self.cancel()
                    watch.interruption.cancel("unwanted")
                    breaks = True
                case IncidentKind.CANCEL_UNNOTICED:
                    await self.cancel()
                case IncidentKind.HAND_OVER:
                    watch.interruption.hand_over(now=False)
                case IncidentKind.HAND_OVER_NOW:
                    watch.interruption.hand_over(now=True)
                    breaks = True
                case IncidentKind.ANSWER:
                    await self.decide(incident.reply)
            if incident.hangs and breakable and breaks:
                await watch.hang()

        return happen
