"""One thread played through: runs that are started, killed, robbed, answered, cancelled and brought to an end.

Everything that happens is given by plain data, so that whatever goes wrong can be played again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from app.domain.agents.specs import AgentSpec, ToolExecution
from app.domain.errors import OwnershipLost
from app.domain.runs.runs import Running, Waiting
from app.domain.runs.terminations import WORKER_LOST
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.tickets import Ticket
from app.llm.scripted.model import Say, ScriptedTurn, turn
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.runtime.endings import Ending, HandedOver, RunFinished, Suspended
from app.runtime.handoff import active_agent
from app.runtime.loop import fail_claimed
from app.runtime.ports import ModelRequest
from app.workers.execution_context import ClaimedRun
from app.workers.liveness.poison_guard import MAX_LOSSES
from tests.support.reference import Reference
from tests.support.team import Team
from tests.support.thread_rows import Rows, check_rows
from tests.support.watching import Stimulus, Watch, WatchableEmitter, WatchedTool, watch_over

Fault: TypeAlias = Callable[[ActiveRun], None]
"""Something wrong that is put into every execution, between the loop and what it works with."""


def no_fault(_: ActiveRun) -> None:
    """The loop as it is."""


class House(Protocol):
    """A thread, wherever its rows are."""

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


class Kind(StrEnum):
    KILL = "kill"
    ROB = "rob"
    """Another worker takes the run; this one doesn't know."""
    CANCEL = "cancel"
    CANCEL_UNHEARD = "cancel unheard"
    """The wish is durable, and word of it doesn't reach the worker."""
    HAND_OVER = "hand over"
    HAND_OVER_NOW = "hand over now"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Reply:
    """A person's answer to one of the open tickets, counted round and round."""

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
class Happening:
    """What happens at one point of an execution. `hangs`: what is under way there takes until a wish
    breaks it."""

    at: int
    kind: Kind
    hangs: bool = False
    reply: Reply = Reply(0, Action.APPROVE)


class Player:
    def __init__(
        self,
        house: House,
        spec: AgentSpec,
        tools: Mapping[str, WatchedTool],
        *,
        fault: Fault = no_fault,
    ) -> None:
        self.house = house
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

    # --- what may happen ------------------------------------------------------------------------

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
        self._claimed = await self.house.start(here=here)

    async def execute(self, happenings: Sequence[Happening] = (), *, is_eager: bool = True) -> int:
        """Let a worker have the run, until it is at rest or the worker gone; how many points it passed."""
        claimed = self._claimed or await self.house.claim()
        self._claimed = None
        if claimed is None:
            return 0
        stimuli = {happening.at: self._stimulus(happening) for happening in happenings}
        watch = Watch(self.reference, stimuli, is_eager)
        team = Team(self._spec, self._tools, self._script, self._passes, self._mode, watch)
        handed_to = active_agent(claimed.thread_state) if claimed.record.run_state else None
        agent = await team.at_version(*(handed_to or (self._spec.id, None)))
        assert isinstance(agent, ResolvedAgent)
        run, voice = await self.house.load(claimed, agent, team, watch.interruption)
        watch_over(run, watch, self._tools.values(), voice)
        self._fault(run)
        if claimed.record.cancel_requested_at is not None:
            watch.interruption.cancel("unwanted")
        try:
            ending = await watch.run(self._carry_out(run))
        except OwnershipLost:
            ending = None
            assert self._claimed is not None, "a run was lost that nobody has taken"
        self._check_ending(ending, watch)
        self.reference.lost()
        return watch.points

    async def decide(self, reply: Reply) -> bool:
        """Answer one of the open tickets; False when there is none."""
        open_ones = (await self.house.rows()).open_tickets
        if not open_ones:
            return False
        ticket = open_ones[reply.which % len(open_ones)]
        answer = reply.to(ticket)
        await self.house.decide(ticket, answer)
        self.reference.decided(ticket, answer)
        return True

    async def cancel(self) -> None:
        before = await self.house.rows()
        await self.house.cancel("unwanted")
        after = await self.house.rows()
        if after.record.is_done and not before.record.is_done:
            self.reference.ended_at_rest([e.message for e in after.log[len(before.log) :]])

    async def settle(self) -> Rows:
        """Nothing goes wrong any more, and whoever is asked answers: the run comes to its end."""
        for _ in range(40):
            rows = await self.house.rows()
            check_rows(rows)
            if rows.record.is_done:
                return rows
            if isinstance(rows.record.state, Waiting) and not rows.has_answer:
                unwanted = rows.record.cancel_requested_at is not None
                assert unwanted or rows.open_tickets, "waits for nothing"
                if not unwanted:
                    await self.decide(Reply(0, Action.APPROVE))
                    continue
            await self.execute()
        raise AssertionError("the run doesn't come to its end")

    # --- how it happens -------------------------------------------------------------------------

    async def _carry_out(self, run: ActiveRun) -> Ending:
        if run.record.losses > MAX_LOSSES:
            return await fail_claimed(run, WORKER_LOST, "too many")
        return await self.house.advance(run)

    def _script(self, request: ModelRequest) -> ScriptedTurn:
        """The next turn; what a lost worker was told isn't told again."""
        return self._turns.pop(0) if self._turns else turn(Say(("That ", "is all.")))

    def _check_ending(self, ending: Any, watch: Watch) -> None:
        match ending:
            case RunFinished() | Suspended():
                assert self._claimed is None, "a worker ended a run that it had lost"
                self.reference.came_to_rest()
            case HandedOver():
                self.reference.came_to_rest()
            case None:
                assert watch.is_dead or self._claimed is not None

    async def _rob(self) -> None:
        rows = await self.house.rows()
        if self._claimed is None and isinstance(rows.record.state, Running):
            self._claimed = await self.house.claim()
            self.reference.lost()

    def _stimulus(self, happening: Happening) -> Stimulus:
        async def happen(watch: Watch, breakable: bool) -> None:
            breaks = False
            match happening.kind:
                case Kind.KILL:
                    await watch.kill()
                case Kind.ROB:
                    await self._rob()
                case Kind.CANCEL:
                    await self.cancel()
                    watch.interruption.cancel("unwanted")
                    breaks = True
                case Kind.CANCEL_UNHEARD:
                    await self.cancel()
                case Kind.HAND_OVER:
                    watch.interruption.hand_over(now=False)
                case Kind.HAND_OVER_NOW:
                    watch.interruption.hand_over(now=True)
                    breaks = True
                case Kind.ANSWER:
                    await self.decide(happening.reply)
            if happening.hangs and breakable and breaks:
                await watch.hang()

        return happen
