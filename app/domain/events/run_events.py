"""Events about the whole run: its creation, its activations, its state, and requests of clients.

`run_start` is the first event of an activation, `run_finish` the last one.
"""

from dataclasses import dataclass
from typing import ClassVar

from app.domain.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class RunCreated:
    """First event of a run. `position` counts the runs before it on the thread."""

    event_type: ClassVar[str] = "run_created"
    agent_id: str
    status: str
    position: int
    input_message_ids: list[str]


@dataclass(frozen=True, slots=True)
class RunStart:
    event_type: ClassVar[str] = "run_start"
    identity: JsonObject
    parent_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class RunFinish:
    event_type: ClassVar[str] = "run_finish"
    identity: JsonObject
    status: str
    termination: JsonObject
    outcome: str | None = None
    result: JsonObject | None = None
    waiting: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    event_type: ClassVar[str] = "state_snapshot"
    snapshot: JsonObject


@dataclass(frozen=True, slots=True)
class CancelRequested:
    event_type: ClassVar[str] = "cancel_requested"
    requested_by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """The run suspends at its next step border, or isn't executed if it waits, until it is resumed."""

    event_type: ClassVar[str] = "pause_requested"
    requested_by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PauseEnded:
    """The pause request was removed; the run may execute again."""

    event_type: ClassVar[str] = "pause_ended"
    ended_by: str


@dataclass(frozen=True, slots=True)
class RollbackRequested:
    """When the run ends, its messages are taken out of the conversation, because `by_run_id` replaces it."""

    event_type: ClassVar[str] = "rollback_requested"
    requested_by: str
    by_run_id: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The messages from `from_seq` to `to_seq` no longer count: the run is about to end, or it is `by_run_id` and
    replaces the end of the conversation. Both are absent if the run wrote no message."""

    event_type: ClassVar[str] = "rolled_back"
    by_run_id: str
    from_seq: int | None = None
    to_seq: int | None = None


RUN_CREATED = RunCreated.event_type
RUN_START = RunStart.event_type
RUN_FINISH = RunFinish.event_type
IDENTITY = "identity"
"""The field of `run_start` and `run_finish` that only traces need."""
