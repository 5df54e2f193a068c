"""A run of a local agent while it executes: its agent and state, and how its progress is saved."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from app.domain.checkpoints import CheckpointAnswer, CheckpointSaved, DecidedConcurrently
from app.domain.children.background_tasks import NewTask
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import RunFinish
from app.domain.ids import AgentId, CallId, TicketKey
from app.domain.inference.options import MAX_ANSWER_BYTES
from app.domain.json_values import JsonObject
from app.domain.rules.rules import Rule
from app.domain.runs.limits import RAISED, USED, Used
from app.domain.runs.pauses import NewPause
from app.domain.runs.rate_limits import RateLimitPolicy
from app.domain.runs.runs import LIFECYCLE, Done, RunRecord, Usage, Waiting
from app.domain.runs.terminations import status_reason
from app.domain.structs import replace
from app.domain.threads.messages import Message
from app.domain.tickets.tickets import Ticket
from app.domain.tools.tool_calls import CallState
from app.domain.usage.billed_requests import BilledRequest, UsageKind, usd
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.billing import Billing
from app.runtime.compaction.compaction import FAILURES, NO_RESULT, Compaction, CompactionResult
from app.runtime.plugins import Request
from app.runtime.ports.call_waits import Tasks
from app.runtime.ports.files import NO_FILES, FileReader
from app.runtime.ports.memory import MemoryStore
from app.runtime.ports.models import TokenUsage
from app.runtime.ports.persistence import (
    CrashEvidenceReader,
    NoCrashEvidence,
    NoRememberedRules,
    RememberedRules,
)
from app.runtime.ports.tool_files import ToolFiles
from app.runtime.run_session import EXECUTING, RunActivity, RunSession
from app.runtime.state import ChangeBatch, StateScope, StateStore
from app.runtime.tool_search.revealed_tools import REVEALED_TOOLS
from app.runtime.usage import UsageMeter

log = structlog.get_logger(__name__)

OWN_EXTENSIONS = frozenset({LIFECYCLE, RAISED, USED})
"""Extensions of a run's state that belong to the runtime; plugins can't use these keys."""


@dataclass(slots=True, kw_only=True)
class ActiveRun(RunSession):
    """An executing run of a local agent: its state keys, usage, calls, tasks and compaction."""

    agent: ResolvedAgent
    tasks: Tasks
    agents: Agents
    compaction: Compaction = field(default_factory=Compaction)
    remembered: RememberedRules = NoRememberedRules()
    crash_evidence: CrashEvidenceReader = NoCrashEvidence()
    files: FileReader = NO_FILES
    tool_files: ToolFiles | None = None
    memories: MemoryStore | None = None
    rate_limits: RateLimitPolicy = RateLimitPolicy()
    max_answer_bytes: int = MAX_ANSWER_BYTES
    """Of one model answer with its reasoning and calls; a longer one is cut as by its length limit."""
    state: StateStore = field(init=False)
    usage: Usage = field(init=False)
    open_calls: dict[CallId, CallState] = field(init=False)
    """Calls in the log that have no result yet."""
    unsaved_answer: Message | None = None
    """The model's answer until a checkpoint saves it. If the run ends before, its last checkpoint has it."""
    _remembered: tuple[tuple[int, AgentId], Sequence[Rule]] | None = None
    new_tasks: list[NewTask] = field(default_factory=list)
    """Background tasks that the next commit starts."""
    open_tasks: int = field(init=False)
    is_paused: bool = field(init=False)
    """The run's row had a pause request at the last commit."""
    new_pause: NewPause | None = None
    """A plugin's pause, which the next commit writes."""
    tool_requests: Sequence[Request] = ()
    """What plugins asked for in the latest step, if the agent has a search tool: which tools it may find."""
    usage_meter: UsageMeter = field(init=False)
    billing: Billing = field(init=False)

    def __post_init__(self) -> None:
        RunSession.__post_init__(self)
        self.usage = self.record.usage
        self.open_tasks = self.record.open_tasks
        self.is_paused = self.record.pause is not None
        self.usage_meter = UsageMeter(self.record)
        self.billing = Billing(self.usage_meter.cost_micros, self.usage_meter.unpriced_requests)
        self.state = restored_state(self.agent, self.record, self.thread_state)
        self.open_calls = {
            state.call.id: state for state in self.start.calls if not state.is_answered
        }

    @property
    def step_index(self) -> int:
        """The open step. Between steps it is the last one, or the incomplete step of the open calls."""
        if self.in_step:
            return self.steps
        return max([self.steps - 1, *(state.step_index for state in self.open_calls.values())])

    @property
    def is_fresh(self) -> bool:
        """Whether no checkpoint of the run was saved yet."""
        return self.record.run_state is None

    @property
    def wants_pause(self) -> bool:
        """Whether the run is to be suspended at the next step border."""
        return self.is_paused or self.new_pause is not None

    @property
    def active_seconds(self) -> float:
        """Time spent executing, over all activations."""
        seconds = (self.clock.now() - self._started_at).total_seconds()
        return self.usage_meter.seconds_before + max(0.0, seconds)

    @property
    def used(self) -> Used:
        """How much of its limits the run has used by now."""
        return Used(
            steps=self.steps,
            tokens=self.usage.input_tokens + self.usage.output_tokens,
            tool_calls=self.usage_meter.tool_calls,
            wall_seconds=self.active_seconds,
            cost_usd=usd(self.billing.cost_micros),
        )

    def bill(self, usage: TokenUsage, model: str, kind: UsageKind) -> None:
        """Add a request to the ledger; the next checkpoint writes its row."""
        agent = self.agent
        is_summary = kind is UsageKind.SUMMARY
        configured = agent.summarizer if is_summary else agent.model
        self.billing.add(
            usage,
            model=model,
            label=(configured or agent.model).name,
            kind=kind,
            agent_id=agent.spec.id,
            step_index=max(self.step_index, 0),
            prices=agent.summarizer_prices if is_summary else agent.prices,
            at=self.clock.now(),
        )

    async def billed_requests(self) -> tuple[BilledRequest, ...]:
        """The requests that the ledger doesn't have yet, with those of finished summaries."""
        for summary_request in self.compaction.take_requests():
            self.bill(summary_request.usage, summary_request.model, UsageKind.SUMMARY)
        return await self.billing.priced()

    async def remembered_rules(self) -> Sequence[Rule]:
        """The rules that people's decisions made, read once for each step and agent."""
        key = (self.steps, self.agent.spec.id)
        if self._remembered is None or self._remembered[0] != key:
            self._remembered = key, await self.remembered.for_calls_of(self.agent.spec.id)
        return self._remembered[1]

    def change_state(self, batch: ChangeBatch) -> None:
        """Apply changes to the state; the next save stores them."""
        for refused in self.state.commit(batch).refused:
            log.warning("state_update_refused", key=refused.change.key.name, reason=refused.reason)

    async def save(
        self,
        messages: Iterable[Message] = (),
        *,
        state: RunActivity = EXECUTING,
        completes_step: bool = False,
        finish: RunFinish | None = None,
        events: Sequence[AgentEvent] = (),
        calls: Sequence[CallState] = (),
        calls_settled: bool = False,
        applied: Sequence[TicketKey] = (),
        opened: Sequence[Ticket] = (),
    ) -> CheckpointAnswer:
        """Commit the run's progress with all events emitted so far.

        `step_end` and `run_finish` are part of the commit. So is a finished summary, if the commit
        completes a step or suspends the run for a rate limit.
        """
        is_timed = isinstance(state, Waiting) and state.until is not None
        summary = self._take_summary(state) if completes_step or is_timed else NO_RESULT
        self.change_state(ChangeBatch(summary.changes))
        billed = await self.billed_requests()
        self.usage_meter.count_cost(self.billing.cost_micros, self.billing.unpriced_requests)
        steps = self.steps + completes_step
        extensions = self.state.exported(StateScope.RUN)
        run_state = in_step = self._run_state(state, steps, extensions)
        if state is not EXECUTING:
            in_step = self._run_state(EXECUTING, steps, extensions)
        new_tasks, self.new_tasks = self.new_tasks, []
        checkpoint = self.checkpoint(
            [*messages, *summary.messages],
            state=state,
            run_state=run_state,
            run_state_in_step=in_step,
            thread_state=self.state.exported(StateScope.THREAD),
            usage=self.usage + summary.usage,
            completes_step=completes_step,
            finish=finish,
            events=events,
            applied=applied,
            opened=opened,
        )
        answer = await self.commit(
            replace(
                checkpoint,
                calls=tuple(calls),
                calls_settled=calls_settled,
                tasks=tuple(new_tasks),
                owes_run_end=isinstance(state, Done) and self.agent.is_placeholder,
                pause=self.new_pause,
                billed=billed,
            )
        )
        if isinstance(answer, CheckpointSaved):
            self.usage = checkpoint.usage
            self.billing.saved(billed)
            self.unsaved_answer = None
            self.new_pause = None
            self.state.touch()
            self._record_calls(calls, calls_settled)
        else:
            self.compaction.put_back(summary)
            self.new_tasks = [*new_tasks, *self.new_tasks]
        if not isinstance(answer, DecidedConcurrently):
            self.open_tasks, self.is_paused = answer.open_tasks, answer.is_paused
        return answer

    def _take_summary(self, state: RunActivity) -> CompactionResult:
        if isinstance(state, Waiting):
            return self.compaction.take_before_suspending()
        return self.compaction.take()

    def _record_calls(self, calls: Sequence[CallState], calls_settled: bool) -> None:
        for state in calls:
            if state.is_answered:
                self.open_calls.pop(state.call.id, None)
            else:
                self.open_calls[state.call.id] = state
        if calls_settled:
            self.open_calls.clear()

    def _run_state(self, state: RunActivity, steps: int, extensions: JsonObject) -> dict[str, Any]:
        """The state that the next activation of this run reads."""
        progress = self.lifecycle(
            state, steps=steps, active_seconds=self.active_seconds, reason=_reason_of(state)
        )
        if self.usage_meter.lost_ms:
            progress["lost_ms"] = self.usage_meter.lost_ms
        return {
            "revision": self.state.snapshot.revision + 1,
            "extensions": {LIFECYCLE: progress, **self.usage_meter.to_state(), **extensions},
        }


def restored_state(agent: ResolvedAgent, record: RunRecord, thread_state: JsonObject) -> StateStore:
    """The last stored state of a run and its thread, read with the agent's state keys."""
    stored = record.run_state or {}
    extensions = {
        name: value
        for name, value in stored.get("extensions", {}).items()
        if name not in OWN_EXTENSIONS
    }
    state = StateStore(
        [*agent.plugins.keys, FAILURES, REVEALED_TOOLS], revision=stored.get("revision", 0)
    )
    state.restore(StateScope.RUN, extensions)
    state.restore(StateScope.THREAD, thread_state)
    return state


def _reason_of(state: RunActivity) -> str | None:
    match state:
        case Waiting(message=message):
            return message
        case Done(termination=termination):
            return status_reason(termination)
        case _:
            return None
