"""Calling a tool's functions: async ones on the loop, others in threads, heard until their call is over."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from app.domain.errors import EventWaitInvalid
from app.domain.events.run_events import AgentEvent
from app.domain.json_values import Json, JsonObject
from app.runtime.ports import Events, ToolContext
from app.tools.functions.output_pacing import ThreadEmitter, WaitForCapacity, paced
from app.tools.functions.thread_pool import ToolThreads
from app.tools.schemas.subset import problem_of_schema

_threads = ToolThreads(limit=32)


async def call(
    function: Callable[..., Any], values: Mapping[str, Any], room: WaitForCapacity
) -> Any:
    """What the function returns; a plain one can't block the loop."""
    if inspect.iscoroutinefunction(function):
        return await paced(function(**values), room)
    returned = await _threads.run(partial(function, **values))
    if inspect.iscoroutine(returned):
        # A plain function that wraps an async one.
        return await paced(returned, room)
    return await returned if inspect.isawaitable(returned) else returned


def emitting_until_closed(context: ToolContext) -> ToolContext:
    """The context as the function gets it: it may speak from any thread, until its call is over.

    What a thread says is said on the loop, in order; a thread that outlives its call isn't heard.
    """
    loop, home, over = asyncio.get_running_loop(), threading.get_ident(), threading.Event()

    def deliver(event: AgentEvent) -> None:
        if not over.is_set():
            context.emit(event)

    from_threads = ThreadEmitter(deliver, context.wait_for_capacity, over, loop)

    def say(event: AgentEvent) -> None:
        if threading.get_ident() == home:
            deliver(event)
        else:
            from_threads.emit(event)

    events = None if context.events is None else _CheckedEvents(context.events)
    return replace(context, emit=say, closed=over, events=events)


class _CheckedEvents:
    """Refuses a schema that no payload could be checked against, before anything waits for it."""

    def __init__(self, events: Events) -> None:
        self._events = events

    async def receive(
        self, name: str, key: str, schema: JsonObject | None, timeout: float | None
    ) -> Json:
        problem = None if schema is None else problem_of_schema(schema)
        if problem is not None:
            raise EventWaitInvalid(f"schema of the event {name!r}: {problem}")
        return await self._events.receive(name, key, schema, timeout)


def is_being_cancelled() -> bool:
    """Whether somebody has cancelled whoever waits here, and not just something that they wait for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def text_of(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  __str__ is the tool's code as well
        return type(error).__name__
