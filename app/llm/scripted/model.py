"""A model that plays a script: needs no network and no key, for the demo and for tests.

A script looks at the transcript, as a model would, and says what the next turn is. `in_order` gives a test
an exact list of turns; `SCRIPTS` are those that a model in agents.toml can name.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from app.clock import new_id
from app.domain.errors import InferenceFailed
from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.json_values import Json, compact
from app.runtime.ports import (
    CallArguments,
    CallOpened,
    ModelChunk,
    ModelFinished,
    ModelRequest,
    ReasoningChunk,
    StopReason,
    TextChunk,
    TokenUsage,
)


@dataclass(frozen=True, slots=True)
class Say:
    """Text; each piece is what arrives together."""

    pieces: tuple[str, ...]

    @staticmethod
    def words(text: str) -> "Say":
        """Word by word, nothing lost: joined again it is the text."""
        return Say(tuple(_words(text)))


@dataclass(frozen=True, slots=True)
class Think:
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call. Arguments given as text are sent as they are, also when they aren't JSON."""

    tool: str
    arguments: Json = field(default_factory=dict)
    id: CallId | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    error: InferenceFailed


@dataclass(frozen=True, slots=True)
class Gate:
    """A place where the model stalls: `reached` tells the test, and it goes on when `open` is set."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)


Part: TypeAlias = Say | Think | Call | Fail | Gate


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One answer. What isn't said of it follows from its parts."""

    parts: tuple[Part, ...]
    stop_reason: StopReason | None = None
    usage: TokenUsage | None = None


Script: TypeAlias = Callable[[ModelRequest], ScriptedTurn]


def turn(*parts: Part | str, stop_reason: StopReason | None = None) -> ScriptedTurn:
    """A turn of these parts; a plain string is said word by word."""
    whole = tuple(Say.words(part) if isinstance(part, str) else part for part in parts)
    return ScriptedTurn(whole, stop_reason)


class ScriptInOrder:
    """A script that is a list: the first request gets the first turn. Keeps what it was asked."""

    def __init__(self, turns: Sequence[ScriptedTurn]) -> None:
        self._turns = tuple(turns)
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> ScriptedTurn:
        self.requests.append(request)
        if len(self.requests) > len(self._turns):
            return turn(
                Fail(
                    failed(
                        FailureKind.INVALID_REQUEST,
                        f"the script has {len(self._turns)} turns and was asked for another one",
                    )
                )
            )
        return self._turns[len(self.requests) - 1]


def in_order(*turns: ScriptedTurn) -> ScriptInOrder:
    return ScriptInOrder(turns)


class ScriptedModel:
    """Plays what its script says, with a pause before each piece."""

    def __init__(self, name: str, script: Script, *, delay: float = 0.0) -> None:
        self._name = name
        self._script = script
        self._delay = delay

    @property
    def name(self) -> str:
        return self._name

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        async with aclosing(self._play(request)) as chunks:
            yield chunks

    async def _play(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelChunk]]:
        played = self._script(request)
        said = 0
        for part in played.parts:
            match part:
                case Fail(error):
                    raise error
                case Gate(reached, open_):
                    reached.set()
                    await open_.wait()
                case Say() | Think() | Call():
                    for chunks in _chunks_of(part):
                        await self._pause()
                        said += 1
                        yield chunks
                case _:
                    assert_never(part)
        yield [ModelFinished(_stop_reason(played), played.usage or _usage(request, said))]

    async def _pause(self) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)  # noqa: TID251  the pace of a model is what is played


def _chunks_of(part: Say | Think | Call) -> Iterator[Sequence[ModelChunk]]:
    match part:
        case Say(pieces):
            for piece in pieces:
                yield [TextChunk(piece)]
        case Think(pieces):
            for piece in pieces:
                yield [ReasoningChunk(piece)]
        case Call():
            call_id = part.id or CallId(f"call_{new_id()}")
            arguments = part.arguments
            text = arguments if isinstance(arguments, str) else compact(arguments)
            yield [CallOpened(call_id, part.tool)]
            for piece in _words(text):
                yield [CallArguments(call_id, piece)]
        case _:
            assert_never(part)


def _words(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find(" ", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _stop_reason(played: ScriptedTurn) -> StopReason:
    if played.stop_reason is not None:
        return played.stop_reason
    calls = any(isinstance(part, Call) for part in played.parts)
    return StopReason.TOOL_USE if calls else StopReason.END_TURN


def _usage(request: ModelRequest, said: int) -> TokenUsage:
    """A word counts as a token."""
    texts = [request.system_prompt, *(message.text for message in request.messages)]
    prompt = sum(len(text.split()) for text in texts)
    return TokenUsage(prompt_tokens=prompt, completion_tokens=said, total_tokens=prompt + said)
