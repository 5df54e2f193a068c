"""A model that plays a script. It needs no network and no key; the demo and tests use it.

A script reads the transcript, as a model would, and returns the next turn. `in_order` gives a test an exact
list of turns. `SCRIPTS` are the scripts that agents.toml can name.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias, assert_never

from msgspec import Struct, field

from app.clock import new_id
from app.domain.errors import InferenceFailed
from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.json_values import Json, compact
from app.runtime.ports.models import (
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


class ScriptedText(Struct, frozen=True):
    """Text. The pieces arrive one by one."""

    pieces: tuple[str, ...]

    @staticmethod
    def words(text: str) -> "ScriptedText":
        """Split the text into words. Joined again they are the same text."""
        return ScriptedText(tuple(_split_words(text)))


class ScriptedReasoning(Struct, frozen=True):
    pieces: tuple[str, ...]


class Call(Struct, frozen=True, kw_only=True):
    """A tool call. Arguments given as text are sent unchanged, also if they aren't JSON."""

    tool: str
    arguments: Json = {}
    id: CallId | None = None


class Fail(Struct, frozen=True):
    error: InferenceFailed


class Gate(Struct, frozen=True):
    """The model stalls here: it sets `reached`, and continues once `open` is set."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)


Part: TypeAlias = ScriptedText | ScriptedReasoning | Call | Fail | Gate


class ScriptedTurn(Struct, frozen=True):
    """One answer. The stop reason and the usage follow from its parts unless they are set."""

    parts: tuple[Part, ...]
    stop_reason: StopReason | None = None
    usage: TokenUsage | None = None


Script: TypeAlias = Callable[[ModelRequest], ScriptedTurn]


def turn(*parts: Part | str, stop_reason: StopReason | None = None) -> ScriptedTurn:
    """A turn of these parts. A plain string is streamed word by word."""
    whole = tuple(ScriptedText.words(part) if isinstance(part, str) else part for part in parts)
    return ScriptedTurn(whole, stop_reason)


class ScriptInOrder:
    """A script that is a list: each request gets the next turn. Keeps the requests."""

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
                        f"the script has {len(self._turns)} turns and got another request",
                    )
                )
            )
        return self._turns[len(self.requests) - 1]


def in_order(*turns: ScriptedTurn) -> ScriptInOrder:
    return ScriptInOrder(turns)


class ScriptedModel:
    """Plays its script, with a delay before each piece."""

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
        pieces = 0
        for part in played.parts:
            match part:
                case Fail(error):
                    raise error
                case Gate(reached, open_):
                    reached.set()
                    await open_.wait()
                case ScriptedText() | ScriptedReasoning() | Call():
                    for chunks in _chunks_of(part):
                        await self._pause()
                        pieces += 1
                        yield chunks
                case _:
                    assert_never(part)
        yield [ModelFinished(_stop_reason(played), played.usage or _usage(request, pieces))]

    async def _pause(self) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)  # noqa: TID251  plays the pace of a model


def _chunks_of(part: ScriptedText | ScriptedReasoning | Call) -> Iterator[Sequence[ModelChunk]]:
    match part:
        case ScriptedText(pieces):
            for piece in pieces:
                yield [TextChunk(piece)]
        case ScriptedReasoning(pieces):
            for piece in pieces:
                yield [ReasoningChunk(piece)]
        case Call():
            call_id = part.id or CallId(f"call_{new_id()}")
            arguments = part.arguments
            text = arguments if isinstance(arguments, str) else compact(arguments)
            yield [CallOpened(call_id, part.tool)]
            for piece in _split_words(text):
                yield [CallArguments(call_id, piece)]
        case _:
            assert_never(part)


def _split_words(text: str) -> Iterator[str]:
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


def _usage(request: ModelRequest, pieces: int) -> TokenUsage:
    """Counts a word as a token."""
    texts = [request.system_prompt, *(message.text for message in request.messages)]
    prompt = sum(len(text.split()) for text in texts)
    return TokenUsage(prompt_tokens=prompt, completion_tokens=pieces, total_tokens=prompt + pieces)
