"""The contract of a backend: what it is asked, how it speaks meanwhile, and what it answers.

A backend carries out one *turn*: from a message of ours to the point where the remote agent has
finished, or waits for somebody. It keeps nothing between turns: what it needs to find the same remote
again is its *binding*, which is durable before it waits for the first time. So whoever continues after a
crash finds the turn under way and joins it, instead of beginning another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.agents.backend_results import BackendResult
from app.domain.agents.capabilities import Capabilities
from app.domain.agents.endpoints import Endpoint
from app.domain.errors import HoldfastError
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.json_values import Json, JsonObject
from app.domain.threads.messages import Message
from app.domain.tickets.decisions import DecisionAnswer


class BackendError(HoldfastError):
    """A turn that can't be carried out: its run ends with this as its error."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What is answered to one of the remote's questions: by a person, or because nobody has in time."""

    question: str
    decision_id: str
    answer: DecisionAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn, and all that a backend may know of it.

    `key` is the same however often this very turn is tried: what it begins at the remote is to be named
    after it. A turn that `joins` was accepted by the remote before, and its `binding` tells which it is.
    """

    agent_id: AgentId
    run_id: RunId
    thread_id: ThreadId
    key: str
    messages: Sequence[Message]
    """The whole conversation, as far as a model would see it."""
    new_messages: Sequence[Message]
    """What the remote hasn't been told yet: messages of users, or an answer it has asked for."""
    binding: JsonObject | None = None
    joins: bool = False
    is_continuation: bool = False
    """The run has had turns before this one."""
    answers: Sequence[RemoteAnswer] = ()
    """What was answered since; `new_messages` have the same in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingQuestions:
    """A turn that has come to wait for people, and the names of what it had asked by then."""

    run_id: RunId
    binding: JsonObject
    questions: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """A turn that nobody wants any more. Without a binding, or with one of a turn before it, nobody knows
    whether the remote has got it."""

    agent_id: AgentId
    run_id: RunId
    thread_id: ThreadId
    key: str
    binding: JsonObject | None


class TurnEmitter(Protocol):
    """How a turn shows what it does, while it does it."""

    async def bind(self, binding: JsonObject) -> None:
        """Keep what finds this turn again; returns once that is durable."""

    def text(self, delta: str) -> None:
        """A piece of the answer."""

    def start_over(self, reason: str) -> None:
        """Void the pieces of this turn so far: they come again, or something else does."""

    def activity(self, activity_type: str, content: Json) -> None:
        """What the remote is at, in place of what was shown before under the same type."""

    async def wait_for_capacity(self) -> None:
        """Wait until what was said and isn't durable yet is within its bound."""


class Backend(Protocol):
    """One endpoint's agent. Cancelling a call closes its connections; it says nothing to the remote."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def execute_root(self, turn: Turn, voice: TurnEmitter) -> BackendResult:
        """Carry out a turn; raises `BackendError` when that can't be done. The endpoint's time-out is a
        result of it (`TimedOut`), and not an error."""

    async def pending_questions(self, look: PendingQuestions) -> frozenset[str]:
        """The names of all that it waits for people to answer, by which it shows whether somebody else has;
        raises `BackendError` when that can't be told."""

    async def abort(self, abort: Abort) -> None:
        """Stop a turn at the remote; raises `BackendError` when that fails."""

    async def aclose(self) -> None: ...


class Factory(Protocol):
    """Makes backends of one kind."""

    @property
    def capabilities(self) -> Capabilities:
        """What every backend of this kind can do."""

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        """What is wrong with an endpoint as it is written: keys below it, each with a sentence."""

    def problem(self, endpoint: Endpoint, environment: Mapping[str, str]) -> str | None:
        """What is missing in this process to talk to it."""

    def build(self, endpoint: Endpoint, environment: Mapping[str, str]) -> Backend: ...
