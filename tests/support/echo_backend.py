"""A backend whose remote lives in the test's own process: it does what the user's words ask for.

`say <text>` answers, word by word; `ask <question>` and `login <where>` wait for somebody, and the answer
is echoed; `fail <why>`, `cancelled` and `slow` end in their way; `hang` accepts the turn and never ends;
`make <text>` makes an artifact; `die <why>` and `lose <what>` can't carry out the turn to its end; `break` is
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
    """Somebody else has given the answer that it waits for."""
    abort_fails: bool = False
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    """A turn hangs."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets a hanging turn go on."""

    # --- as a factory -----------------------------------------------------------------------------

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        unknown = sorted(set(endpoint.options) - {"loud"})
        return [(f"options.{key}", "unknown key; remove it") for key in unknown]

    def problem(self, endpoint: Endpoint, environment: Mapping[str, str]) -> str | None:
        return None

    def build(self, endpoint: Endpoint, environment: Mapping[str, str]) -> Backend:
        return self

    # --- as a backend -----------------------------------------------------------------------------

    async def execute_root(self, turn: Turn, voice: TurnEmitter) -> BackendResult:
        self.turns.append(turn)
        words = "\n".join(message.text for message in turn.new_messages)
        if words == "hang unheard":
            return await self._speak("hang", "", voice)
        if not turn.joins:
            await voice.bind({"task": turn.key})
        if turn.answers:
            return _said(f"you answered: {words}")
        verb, _, rest = words.partition(" ")
        if verb in ("say", "hang"):
            return await self._speak(verb, rest, voice)
        return _answer(verb, rest, words)

    async def _speak(self, verb: str, rest: str, voice: TurnEmitter) -> BackendResult:
        if verb == "say":
            for word in rest.split():
                voice.text(f"{word} ")
            return _said(f"{rest} ")
        voice.text("still ")
        self.hanging.set()
        await self.released.wait()
        voice.text("here")
        return _said("still here")

    async def pending_questions(self, look: PendingQuestions) -> frozenset[str]:
        return frozenset() if self.was_answered else look.questions

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


def _said(text: str, status: Completed | WaitingInput | WaitingAuth | None = None) -> BackendResult:
    return BackendResult(status=status or Completed(), output=BackendOutput(text=text))


def _answer(verb: str, rest: str, words: str) -> BackendResult:
    match verb:
        case "ask":
            return _said(rest, WaitingInput(rest))
        case "login":
            return _said(rest, WaitingAuth(rest))
        case "fail":
            return BackendResult(status=BackendFailed(rest))
        case "cancelled":
            return BackendResult(status=BackendCancelled())
        case "slow":
            return BackendResult(status=TimedOut())
        case "break":
            raise RuntimeError("a defect")
        case "die" | "lose":
            raise BackendError("remote_unreachable", rest)
        case "make":
            made = Artifact(id="a1", name="draft", media_type="text/plain", content=rest)
            output = BackendOutput(text="made", artifacts=(made,))
            return BackendResult(status=Completed(), output=output)
        case _:
            return _said(f"you said: {words}")
