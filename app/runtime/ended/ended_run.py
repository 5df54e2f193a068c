"""A run that ended without its agent's code: a worker calls its `run_end` hooks on the stored state."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from app.domain.json_values import Json, JsonObject
from app.domain.rules.rules import Rule
from app.domain.runs.limits import used_by
from app.domain.runs.runs import RunRecord, Usage
from app.domain.threads.messages import LoggedMessage
from app.runtime.active_run import OWN_EXTENSIONS, restored_state
from app.runtime.agent import ResolvedAgent
from app.runtime.ports.persistence import RememberedRules
from app.runtime.state import ChangeBatch, StateScope, StateStore

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class EndedRun:
    """The view and the state of the hooks. It can't emit events or be saved."""

    record: RunRecord
    agent: ResolvedAgent
    log: Sequence[LoggedMessage]
    thread_state: JsonObject
    """The thread's state when the run ended."""
    rules: RememberedRules
    state: StateStore = field(init=False)

    def __post_init__(self) -> None:
        self.state = restored_state(self.agent, self.record, self.thread_state)

    @property
    def steps(self) -> int:
        return self.record.steps

    @property
    def usage(self) -> Usage:
        return self.record.usage

    @property
    def active_seconds(self) -> float:
        return used_by(self.record).wall_seconds

    async def remembered_rules(self) -> Sequence[Rule]:
        return await self.rules.for_calls_of(self.agent.spec.id)

    def change_state(self, batch: ChangeBatch) -> None:
        for refused in self.state.commit(batch).refused:
            log.warning("state_update_refused", key=refused.change.key.name, reason=refused.reason)

    @property
    def changed_run_state(self) -> JsonObject | None:
        """The run's state with the hooks' changes; None if they changed nothing."""
        stored = self.record.run_state or {}
        before: dict[str, Json] = stored.get("extensions", {})
        kept = {name: value for name, value in before.items() if name in OWN_EXTENSIONS}
        after = {**kept, **self.state.exported(StateScope.RUN)}
        if after == before:
            return None
        return {"revision": self.state.snapshot.revision, "extensions": after}

    @property
    def changed_thread_state(self) -> JsonObject | None:
        """The thread's state with the hooks' changes; None if they changed nothing."""
        after = self.state.exported(StateScope.THREAD)
        return None if after == self.thread_state else after
