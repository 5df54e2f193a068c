"""One thread in memory for tests of the loop, with emitters that can be held and dropped."""

from app.domain.agents.specs import AgentSpec
from app.domain.claims.claimed_run import ClaimedRun
from app.domain.events.run_events import PauseEnded, PauseRequested
from app.domain.runs.pauses import PauseRequest
from app.domain.structs import replace
from app.runtime.active_run import ActiveRun
from app.runtime.agent import Agents, ResolvedAgent
from app.runtime.cancellation import Interruption
from app.testing.journal import MemoryJournal
from app.testing.memory_thread import MemoryThread
from tests.support.thread_rows import SUBJECT, Rows


class MemoryEmitter(MemoryJournal):
    """The run's journal; `drop` loses its pending events as a killed worker does."""

    async def flush(self) -> None:
        """Commit the pending events. Without one it notices no lost run, as the writer in Postgres."""
        if self.pending:
            await super().flush()

    def hold(self) -> None:
        """Only a checkpoint commits pending events here, so there is nothing to hold back."""

    def drop(self) -> None:
        self.pending.clear()


class MemorySystem(MemoryThread):
    """One thread and its runs, one after the other."""

    is_real = False

    def __init__(self, spec: AgentSpec) -> None:
        super().__init__(spec, subject=SUBJECT)

    def request_pause(self, reason: str | None = None) -> None:
        self.record = replace(self.record, pause=PauseRequest(self.clock.now(), SUBJECT, reason))
        self.emit(PauseRequested(SUBJECT, reason))

    def end_pause(self) -> None:
        self.record = replace(self.record, pause=None)
        self.emit(PauseEnded(SUBJECT))

    async def load(
        self,
        claimed: ClaimedRun,
        agent: ResolvedAgent,
        agents: Agents,
        interruption: Interruption,
    ) -> tuple[ActiveRun, MemoryEmitter]:
        emitter = MemoryEmitter(self, claimed.record.attempt, interruption.abandon)
        return self.active_run(claimed, agent, agents, interruption, emitter), emitter

    async def rows(self) -> Rows:
        calls = sorted(self.calls.values(), key=lambda row: row[0].position)
        return Rows(
            record=self.record,
            log=tuple(self.log),
            events=tuple(self.events),
            tickets=tuple(self.tickets.values()),
            calls=tuple(state for state, _ in calls),
            thread_state=self.thread_state,
        )
