"""A model that obeys commands in the user's message, in this process or as an HTTP provider.

The commands are those of `tests.support.echo_backend`: `say`, `ask`, `login`, `fail` and `hang`. It asks by a
tool whose calls need a decision. `give <agent> <words> & <agent> <words>` delegates to other agents.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.threads.messages import Message, Role
from app.domain.tools.tool_calls import ResumeMode, ToolResult
from app.runtime.ports.models import (
    CallArguments,
    CallOpened,
    ModelChunk,
    ModelFinished,
    ModelRequest,
    StopReason,
    TextChunk,
)
from app.runtime.ports.tool_context import ToolContext
from app.tools.functions.decorator import tool
from tests.support.listeners import listening

ASK = "ask_person"


@tool(name=ASK, effect="read")
async def ask_person(question: str, ctx: ToolContext) -> ToolResult:
    """Ask a person.

    Args:
        question: What to ask.
    """
    return ToolResult.suspended(
        ASK, ctx.suspend(question, resume_mode=ResumeMode.USE_DECISION_AS_TOOL_RESULT)
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The next step of the commands."""

    pieces: tuple[str, ...] = ()
    calls: tuple[tuple[str, dict[str, str]], ...] = ()
    failure: str | None = None
    hangs: bool = False


def plan_of(prompt: str, answers: Sequence[str]) -> Plan:
    verb, _, argument = prompt.partition(" ")
    if answers:
        return Plan((f"you answered: {' and '.join(each.strip() for each in answers)}",))
    match verb:
        case "say":
            return Plan(tuple(f"{word} " for word in argument.split()))
        case "ask" | "login":
            return Plan(calls=((ASK, {"question": argument}),))
        case "give":
            return Plan(calls=tuple(_work(each) for each in argument.split(" & ")))
        case "fail":
            return Plan(failure=argument)
        case "hang":
            return Plan(hangs=True)
        case _:
            return Plan((f"you said: {prompt}",))


def _work(words: str) -> tuple[str, dict[str, str]]:
    agent, _, prompt = words.partition(" ")
    return f"agent_run_{agent}", {"prompt": prompt}


@dataclass
class CommandedModel:
    """The model as an object and as a provider, with what a test observes."""

    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    broken_off: int = 0

    def forget(self) -> None:
        """Reset for the next test; hanging answers end."""
        self.released.set()
        self.hanging, self.released, self.broken_off = asyncio.Event(), asyncio.Event(), 0

    @property
    def name(self) -> str:
        return "obedience"

    # --- in this process --------------------------------------------------------------------------

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        yield self._chunks(_plan_of_log(request.messages))

    async def _chunks(self, plan: Plan) -> AsyncIterator[Sequence[ModelChunk]]:
        if plan.failure is not None:
            raise failed(FailureKind.INVALID_REQUEST, plan.failure)
        if plan.calls:
            for place, (name, arguments) in enumerate(plan.calls, 1):
                call_id = CallId(f"c{place}")
                yield [CallOpened(call_id, name), CallArguments(call_id, json.dumps(arguments))]
            yield [ModelFinished(StopReason.TOOL_USE, None)]
            return
        if plan.hangs:
            yield [TextChunk("still ")]
            await self._hang()
            yield [TextChunk("here")]
        for piece in plan.pieces:
            yield [TextChunk(piece)]
        yield [ModelFinished(StopReason.END_TURN, None)]

    async def _hang(self) -> None:
        released = self.released
        self.hanging.set()
        try:
            await released.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise

    # --- as a provider ----------------------------------------------------------------------------

    @asynccontextmanager
    async def provided(self) -> AsyncIterator[int]:
        """An OpenAI-compatible server; its port."""
        async with listening(self._serve) as port:
            try:
                yield port
            finally:
                self.released.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        request = json.loads(await reader.readexactly(length))
        await self._answer(writer, _plan_of_wire(request["messages"]))

    async def _answer(self, writer: asyncio.StreamWriter, plan: Plan) -> None:
        if plan.failure is not None:
            body = json.dumps({"error": {"message": plan.failure, "type": "invalid_request"}})
            writer.write(
                b"HTTP/1.1 400 X\r\ncontent-type: application/json\r\nconnection: close\r\n"
                + f"content-length: {len(body)}\r\n\r\n{body}".encode()
            )
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        writer.write(b"connection: close\r\n\r\n")
        for place, (name, arguments) in enumerate(plan.calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": place, "id": f"c{place + 1}", "type": "function", "function": function}
            _write_frame(writer, {"tool_calls": [call]})
        if plan.hangs:
            _write_frame(writer, {"content": "still "})
            await writer.drain()
            await self._hang()
            _write_frame(writer, {"content": "here"})
        for piece in plan.pieces:
            _write_frame(writer, {"content": piece})
        _write_frame(writer, {}, finish="tool_calls" if plan.calls else "stop")
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()


def _write_frame(
    writer: asyncio.StreamWriter, delta: dict[str, Any], finish: str | None = None
) -> None:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    writer.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")


def _plan_of_log(messages: Sequence[Message]) -> Plan:
    at = max(place for place, message in enumerate(messages) if message.role is Role.USER)
    answers = [message.text for message in messages[at:] if message.role is Role.TOOL]
    return plan_of(messages[at].text, answers)


def _plan_of_wire(messages: Sequence[dict[str, Any]]) -> Plan:
    at = max(place for place, message in enumerate(messages) if message["role"] == "user")
    answers = [message["content"] for message in messages[at:] if message["role"] == "tool"]
    return plan_of(_text_of(messages[at]["content"]), answers)


def _text_of(content: str | Sequence[dict[str, Any]]) -> str:
    """The text beside pictures, which come as a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")
