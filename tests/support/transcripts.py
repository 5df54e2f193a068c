"""Short constructors for messages and requests, and collectors for answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from app.domain.ids import CallId, MessageId
from app.domain.inference.options import NO_OPTIONS, InferenceOptions
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text, ToolCall
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    LanguageModel,
    ModelChunk,
    ModelFinished,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    UsageSoFar,
)

ADD = ToolDescriptor(
    name="add",
    description="Adds two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


def user(text: str) -> Message:
    return Message(id=MessageId("u"), role=Role.USER, content=(Text(text),))


def assistant(text: str = "", *calls: ToolCall) -> Message:
    content = (Text(text),) if text else ()
    return Message(id=MessageId("a"), role=Role.ASSISTANT, content=content, tool_calls=calls)


def result(call_id: str, text: str) -> Message:
    return Message(
        id=MessageId("t"), role=Role.TOOL, content=(Text(text),), tool_call_id=CallId(call_id)
    )


def continued(thread: Sequence[Message], pool: Sequence[Message], chance: Random) -> list[Message]:
    """The thread with more messages. Sometimes it is rolled back, loses its beginning, or has a changed message."""
    begin, end = 0, len(thread)
    if chance.random() < 0.2:
        end = chance.randint(0, len(thread))
    if chance.random() < 0.1:
        begin = chance.randint(0, end)
    rest = list(thread[begin:end])
    if rest and chance.random() < 0.1:
        rest[chance.randrange(len(rest))] = replace(chance.choice(pool))
    return rest + chance.choices(pool, k=chance.randint(1, 4))


def asking(
    *messages: Message | str,
    tools: Sequence[ToolDescriptor] = (),
    options: InferenceOptions = NO_OPTIONS,
) -> ModelRequest:
    """A request with this transcript; a plain string is a user message."""
    return ModelRequest(
        system_prompt="You are a test.",
        messages=[user(one) if isinstance(one, str) else one for one in messages],
        tools=tools,
        options=options,
    )


@dataclass(frozen=True, slots=True)
class Received:
    """A complete answer: its chunks in order, adjacent chunks of one kind or call merged."""

    chunks: tuple[ModelChunk, ...]
    lists: int

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, TextChunk))

    @property
    def reasoning(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, ReasoningChunk))

    @property
    def calls(self) -> dict[CallId, tuple[str, str]]:
        """Name and arguments of each call; arguments before their call has opened are a KeyError."""
        calls: dict[CallId, tuple[str, str]] = {}
        for chunk in self.chunks:
            if isinstance(chunk, CallOpened):
                assert chunk.id not in calls
                calls[chunk.id] = (chunk.name, "")
            elif isinstance(chunk, CallArguments):
                name, before = calls[chunk.id]
                calls[chunk.id] = (name, before + chunk.args_delta)
        return calls

    @property
    def finished(self) -> ModelFinished:
        last = self.chunks[-1]
        assert isinstance(last, ModelFinished)
        assert sum(isinstance(chunk, ModelFinished) for chunk in self.chunks) == 1
        return last


async def collect(model: LanguageModel, request: ModelRequest) -> Received:
    """Collect the chunks of a complete answer."""
    arrived: list[ModelChunk] = []
    lists = await listen(model, request, arrived)
    return Received(tuple(joined(arrived)), lists)


async def listen(model: LanguageModel, request: ModelRequest, arrived: list[ModelChunk]) -> int:
    """Append the chunks to `arrived`, also when the model fails; returns the number of lists."""
    lists = 0
    async with model.stream(request) as stream:
        async for chunks in stream:
            assert chunks
            arrived += chunks
            lists += 1
    return lists


def joined(chunks: Sequence[ModelChunk]) -> list[ModelChunk]:
    """The same chunks, adjacent chunks of one kind or call merged. Interim usage is left out, because providers
    report it at different moments."""
    whole: list[ModelChunk] = []
    for chunk in chunks:
        if isinstance(chunk, UsageSoFar):
            continue
        match whole[-1] if whole else None, chunk:
            case TextChunk(before), TextChunk(text):
                whole[-1] = TextChunk(before + text)
            case ReasoningChunk(before), ReasoningChunk(text):
                whole[-1] = ReasoningChunk(before + text)
            case CallArguments(id_, before), CallArguments(other, text) if id_ == other:
                whole[-1] = CallArguments(id_, before + text)
            case _:
                whole.append(chunk)
    return whole
