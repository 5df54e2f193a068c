"""Language models: what one inference is asked and answers."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from math import inf
from typing import Protocol, TypeAlias

from msgspec import Struct

from app.domain.ids import CallId
from app.domain.inference.options import NO_OPTIONS, InferenceOptions
from app.domain.json_values import JsonObject
from app.domain.threads.citations import Citation
from app.domain.threads.messages import Message
from app.domain.threads.provider_data import ProviderPart
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.ports.outputs import NativeOutput


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One inference. `messages` are ready for the provider: each call has one result."""

    system_prompt: str
    messages: Sequence[Message]
    tools: Sequence[ToolDescriptor] = ()
    options: InferenceOptions = NO_OPTIONS
    output: NativeOutput | None = None
    """The format of the answer, if the provider itself is to keep to it."""
    tool_choice: str | None = None
    """`none`, `required`, or `tool:` and a name; without it the model decides."""
    idle_timeout: float = inf
    """Seconds of silence after which the caller cancels the request."""


class StopReason(StrEnum):
    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    TOOL_USE = "tool_use"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"


class TokenUsage(Struct, frozen=True, kw_only=True):
    """As reported by the provider: negative numbers become 0, missing ones None."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    thinking_tokens: int | None = None


class TextChunk(Struct, frozen=True):
    text: str


class ReasoningChunk(Struct, frozen=True):
    text: str


class CallOpened(Struct, frozen=True):
    id: CallId
    name: str


class CallArguments(Struct, frozen=True):
    id: CallId
    args_delta: str


class UsageSoFar(Struct, frozen=True):
    """What the provider has reported before the end. It counts if the stream has no `ModelFinished`."""

    usage: TokenUsage


class ProviderParts(Struct, frozen=True):
    """Parts of the answer that are complete, by their position in it. A later chunk replaces the same positions.

    Models send them only if their provider wants data back. `issuer` says to whom the data may be sent.
    """

    issuer: JsonObject
    parts: Mapping[int, ProviderPart]


class Citations(Struct, frozen=True):
    """All citations of the answer so far, with their places in its text. A later chunk replaces them."""

    citations: tuple[Citation, ...]


class ModelFinished(Struct, frozen=True):
    """Last item of every complete stream."""

    stop_reason: StopReason
    usage: TokenUsage | None


ModelChunk: TypeAlias = (
    TextChunk
    | ReasoningChunk
    | CallOpened
    | CallArguments
    | ProviderParts
    | Citations
    | UsageSoFar
    | ModelFinished
)


AnswerContext: TypeAlias = AbstractAsyncContextManager[AsyncIterator[Sequence[ModelChunk]]]


class LanguageModel(Protocol):
    """One model of one provider.

    `stream` opens the provider's stream. Leaving the context, also by cancellation, closes its socket.
    Each item has the chunks that arrived together, with adjacent text joined; the last chunk is
    `ModelFinished`. Calls of one answer have different ids. A stream that fails or ends early raises
    `InferenceFailed`. It never retries itself.
    """

    @property
    def name(self) -> str:
        """The provider's own name of the model."""

    def stream(self, request: ModelRequest) -> AnswerContext: ...
