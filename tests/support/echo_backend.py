"""A backend whose remote agent is in the test process. It obeys commands in the user's message.

`say <text>` answers, word by word; `ask <question>` and `login <where>` open a ticket, and echo its
answer, or obey it if it is `ask` or `hang`; `fail <why>`, `cancelled` and `slow` end with that status; `hang` accepts the turn and never ends;
`make <text>` makes an artifact; `die <why>` and `lose <what>` fail during the turn; `break` is
a defect of the backend; `hang unheard` hangs before it has accepted anything.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.agents.catalog import Catalog
from app.backends.base import Abort, Backend, BackendError, PendingQuestions, Turn, TurnEmitter
from app.backends.registry import Backends
from app.domain.agents.backend_results import (
    Artifact,
    BackendCancelled,
    BackendFailed,
    BackendOutput,
    BackendResult,
    Completed,
    TimedOut,
    WaitingAuth,
    WaitingInput,
)
from app.domain.agents.capabilities import (
    Cancellation,
    Capabilities,
    Continuation,
    OutputKind,
    Transcript,
    Waits,
)
from app.domain.agents.endpoints import Endpoint
from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId

ECHO = Capabilities(
    cancellation=Cancellation.REMOTE_ABORT,
    decisions=True,
    continuation=Continuation.REMOTE_STATE,
    waits=Waits.INPUT_AND_AUTH,
    transcript=Transcript.INCREMENTAL_USER_MESSAGES,
    output=OutputKind.TEXT_AND_ARTIFACTS,
)


@dataclass
class Echo:
    """One remote agent, and the factory of backends that talk to it."""

    capabilities: Capabilities = ECHO
    turns: list[Turn] = field(default_factory=list)
    aborts: list[Abort] = field(default_factory=list)
    was_answered: bool = False
    """Whether its question was answered elsewhere."""
    abort_fails: bool = False
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a turn hangs."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a test to let a hanging turn continue."""

    _accepted: dict[str, str] = field(default_factory=dict)

    # --- as a factory -----------------------------------------------------------------------------

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        unknown = sorted(set(endpoint.options) - {"loud"})
        return [(f"options.{key}", "unknown key; remove it") for key in unknown]

    def problem(self, endpoint: Endpoint, environment: Mapping[str, str]) -> str | None:
        return None

    def build(self, endpoint: Endpoint, environment: Mapping[str, str]) -> Backend:
        return self

    # --- as a backend -----------------------------------------------------------------------------

    async def execute_root(self, turn: Turn, emitter: TurnEmitter) -> BackendResult:
        self.turns.append(turn)
        words = self.words_of_turn(turn)
        if words == "hang unheard":
            return await self._speak("hang", "", emitter)
        if not turn.joins:
            await emitter.bind({"task": turn.key})
        verb, _, argument = words.partition(" ")
        if turn.answers and verb not in ("ask", "hang"):
            return _completed(f"you answered: {words}")
        if verb in ("say", "hang"):
            return await self._speak(verb, argument, emitter)
        return _answer(verb, argument, words)

    def words_of_turn(self, turn: Turn) -> str:
        """Its new messages, also for a worker that joins it."""
        if not turn.joins:
            text = "\n".join(message.text for message in turn.new_messages)
            self._accepted[turn.key] = text
        return self._accepted.get(turn.key, "")

    async def _speak(self, verb: str, argument: str, emitter: TurnEmitter) -> BackendResult:
        if verb == "say":
            for word in argument.split():
                emitter.text(f"{word} ")
            return _completed(f"{argument} ")
        emitter.text("still ")
        self.hanging.set()
        await self.released.wait()
        emitter.text("here")
        return _completed("still here")

    async def pending_questions(self, query: PendingQuestions) -> frozenset[str]:
        return frozenset() if self.was_answered else query.questions

    async def abort(self, abort: Abort) -> None:
        self.aborts.append(abort)
        if self.abort_fails:
            raise BackendError("abort_refused", "it won't stop")

    async def aclose(self) -> None:
        return None

    # --- as tests use it --------------------------------------------------------------------------

    @property
    def backends(self) -> Backends:
        return Backends({"echo": self}, {})

    @property
    def catalog(self) -> Catalog:
        endpoint = Endpoint(backend="echo", url="http://echo.test")
        spec = AgentSpec(id=AgentId("remote"), endpoint=endpoint)
        return Catalog(agents={spec.id: spec}, models={}, tools={})


def _completed(
    text: str, status: Completed | WaitingInput | WaitingAuth | None = None
) -> BackendResult:
    return BackendResult(status=status or Completed(), output=BackendOutput(text=text))


def _answer(verb: str, argument: str, words: str) -> BackendResult:
    match verb:
        case "ask":
            return _completed(argument, WaitingInput(argument))
        case "login":
            return _completed(argument, WaitingAuth(argument))
        case "fail":
            return BackendResult(status=BackendFailed(argument))
        case "cancelled":
            return BackendResult(status=BackendCancelled())
        case "slow":
            return BackendResult(status=TimedOut())
        case "break":
            raise RuntimeError("a defect")
        case "die" | "lose":
            raise BackendError("remote_unreachable", argument)
        case "make":
            made = Artifact(id="a1", name="draft", media_type="text/plain", content=argument)
            output = BackendOutput(text="made", artifacts=(made,))
            return BackendResult(status=Completed(), output=output)
        case _:
            return _completed(f"you said: {words}")
