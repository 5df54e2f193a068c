"""Tools that signal their calls to a test, and wait for it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from app.domain.ids import CallId
from app.domain.json_values import Json
from app.domain.structs import replace
from app.llm.scripted.model import Call
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.tools.functions.decorator import tool


@dataclass(frozen=True, slots=True)
class Handed:
    """One call that the tool received."""

    call_id: str
    idempotency_key: str
    text: str
    resume_input: Json


@dataclass(slots=True, kw_only=True)
class Probe:
    """With `held` every call waits until `open` is set; the first `asks` calls suspend."""

    name: str = "probe"
    effect: Literal["read", "idempotent", "unsafe"] = "unsafe"
    held: bool = False
    asks: int = 0
    named: str | None = None
    """The suspension id of its tickets."""
    shows: str = ""
    """Output that it streams first, together with progress."""
    reconcile: Callable[..., Any] | None = None
    handed: list[Handed] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tool(self) -> Tool:
        async def probe(ctx: ToolContext, text: str = "") -> Any:
            self.handed.append(Handed(ctx.call_id, ctx.idempotency_key, text, ctx.resume_input))
            self.reached.set()
            if self.shows:
                ctx.stream_output(self.shows)
                ctx.progress(0.5, "half of it")
            if self.held:
                await self.open.wait()
            if len(self.handed) <= self.asks:
                return self._question(len(self.handed), ctx)
            return f"{self.name} did {text or 'it'}"

        return tool(name=self.name, effect=self.effect, reconcile=self.reconcile)(probe)

    def call(self, id: str, text: str = "") -> Call:
        """A scripted call of this tool."""
        return Call(tool=self.name, arguments={"text": text} if text else {}, id=CallId(id))

    async def was_reached(self) -> None:
        await asyncio.wait_for(self.reached.wait(), 60)

    def _question(self, number: int, ctx: ToolContext) -> Any:
        asked = ctx.suspend(f"Question {number}?", action="ask")
        return replace(asked, suspension_id=self.named)
