"""Events about the whole run: its creation, its activations, its state, and requests of clients.

`run_start` is the first event of an activation, `run_finish` the last one.
"""

from typing import ClassVar

from msgspec import Struct

from app.domain.json_values import JsonObject


class RunCreated(Struct, frozen=True):
    """First event of a run. `position` counts the runs before it on the thread."""

    event_type: ClassVar[str] = "run_created"
    agent_id: str
    status: str
    position: int
    input_message_ids: list[str]


class RunStart(Struct, frozen=True):
    """An activation begins: a worker has claimed the run to start or resume it."""

    event_type: ClassVar[str] = "run_start"
    identity: JsonObject
    parent_run_id: str | None = None


class RunFinish(Struct, frozen=True):
    """An activation ends. The run's status is `waiting` or `done`."""

    event_type: ClassVar[str] = "run_finish"
    identity: JsonObject
    status: str
    termination: JsonObject
    outcome: str | None = None
    result: JsonObject | None = None
    waiting: JsonObject | None = None


class StateSnapshot(Struct, frozen=True):
    """The run's state after a step and before a `run_finish`."""

    event_type: ClassVar[str] = "state_snapshot"
    snapshot: JsonObject


class CancelRequested(Struct, frozen=True):
    """A cancel request is stored. The `run_finish` follows once the worker has stopped."""

    event_type: ClassVar[str] = "cancel_requested"
    requested_by: str
    reason: str | None = None


class PauseRequested(Struct, frozen=True):
    """The run suspends at its next step border, or isn't executed if it waits, until it is resumed."""

    event_type: ClassVar[str] = "pause_requested"
    requested_by: str
    reason: str | None = None


class PauseEnded(Struct, frozen=True):
    """The pause request was removed; the run may execute again."""

    event_type: ClassVar[str] = "pause_ended"
    ended_by: str


class RollbackRequested(Struct, frozen=True):
    """When the run ends, its messages are taken out of the conversation, because `by_run_id` replaces it."""

    event_type: ClassVar[str] = "rollback_requested"
    requested_by: str
    by_run_id: str


class RolledBack(Struct, frozen=True):
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
