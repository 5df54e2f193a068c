"""The contract of a backend: the turn that it gets, the events that it emits, and its result.

A backend executes one *turn*: from a message of ours until the remote agent has finished or waits for a
person. It keeps no state between turns. Its *binding* identifies the turn at the remote, and is durable
before the backend waits for the first time. So after a crash the next worker joins the turn under way.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from app.domain.agents.backend_results import BackendResult
from app.domain.agents.capabilities import Capabilities
from app.domain.agents.endpoints import Endpoint
from app.domain.errors import HoldfastError
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.json_values import Json, JsonObject
from app.domain.threads.messages import Message
from app.domain.tickets.decisions import DecisionAnswer


class BackendError(HoldfastError):
    """A turn failed. Its run ends with this error."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class RemoteAnswer(Struct, frozen=True):
    """The answer to one question of the remote: a person's answer, or the expiry of the ticket."""

    question: str
    decision_id: str
    answer: DecisionAnswer


class Turn(Struct, frozen=True, kw_only=True):
    """One turn of a run, as a backend gets it.

    `key` is the same for every attempt at this turn; requests to the remote carry it. With `joins`, the
    remote has accepted the turn before, and `binding` identifies it.
    """

    agent_id: AgentId
    run_id: RunId
    thread_id: ThreadId
    key: str
    messages: Sequence[Message]
    """The whole conversation, as far as a model would see it."""
    new_messages: Sequence[Message]
    """Messages that the remote doesn't have yet: messages of users, or the answer to its question."""
    binding: JsonObject | None = None
    joins: bool = False
    is_continuation: bool = False
    """Whether the run had turns before this one."""
    answers: Sequence[RemoteAnswer] = ()
    """Answers since the last turn; `new_messages` has the same as text."""
    messages_besides_answers: Sequence[Message] = ()
    """The part of `new_messages` that is in none of the `answers`: other messages and pictures."""


class PendingQuestions(Struct, frozen=True, kw_only=True):
    """A turn that waits for people, and the names of its questions that are known here."""

    run_id: RunId
    binding: JsonObject
    questions: frozenset[str]


class Abort(Struct, frozen=True, kw_only=True):
    """A turn to stop. Without a binding of this turn, the remote may not have received it."""

    agent_id: AgentId
    run_id: RunId
    thread_id: ThreadId
    key: str
    binding: JsonObject | None


class TurnEmitter(Protocol):
    """Emits what a turn produces, while it executes."""

    async def bind(self, binding: JsonObject) -> None:
        """Store the binding of this turn; returns once it is durable."""

    def text(self, delta: str) -> None:
        """Emit a piece of the answer."""

    def start_over(self, reason: str) -> None:
        """Void the text of this turn so far, with a `stream_reset`."""

    def activity(self, activity_type: str, content: Json) -> None:
        """Emit the remote's progress. It replaces the last one of the same type."""

    async def wait_for_capacity(self) -> None:
        """Wait until few enough emitted events are not durable yet."""


class Backend(Protocol):
    """One endpoint's agent. Cancelling a call closes its connections and sends nothing to the remote."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def execute_root(self, turn: Turn, emitter: TurnEmitter) -> BackendResult:
        """Execute a turn. Raises `BackendError` when it fails; the endpoint's time-out is a result
        (`TimedOut`)."""

    async def pending_questions(self, query: PendingQuestions) -> frozenset[str]:
        """The names of the questions that are open at the remote. Raises `BackendError` when it can't be
        reached."""

    async def abort(self, abort: Abort) -> None:
        """Stop a turn at the remote; raises `BackendError` when that fails."""

    async def aclose(self) -> None: ...


class Factory(Protocol):
    """Builds backends of one kind."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of every backend of this kind."""

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        """The errors in an endpoint's options: for each a key below it, and a sentence."""

    def problem(self, endpoint: Endpoint, environment: Mapping[str, str]) -> str | None:
        """Return what this process lacks to reach the endpoint, or None."""

    def build(self, endpoint: Endpoint, environment: Mapping[str, str]) -> Backend: ...
