"""Calls a tool's functions: async ones on the loop, others in threads. Events after the call are dropped."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from app.domain.errors import EventWaitInvalid, QuestionInvalid
from app.domain.events.agent_events import AgentEvent
from app.domain.json_values import Json, JsonObject
from app.domain.structs import replace
from app.runtime.ports.call_waits import ApprovalGiven, Events, Questions
from app.runtime.ports.tool_context import ToolContext
from app.tools.functions.output_pacing import ThreadEmitter, WaitForCapacity, paced
from app.tools.functions.thread_pool import ToolThreads
from app.tools.schemas.subset import problem_of_schema

_threads = ToolThreads(limit=32)


async def call(
    function: Callable[..., Any], values: Mapping[str, Any], wait_for_capacity: WaitForCapacity
) -> Any:
    """Return the function's result. A plain function runs in a thread, so it can't block the loop."""
    if inspect.iscoroutinefunction(function):
        return await paced(function(**values), wait_for_capacity)
    returned = await _threads.run(partial(function, **values))
    if inspect.iscoroutine(returned):
        # A plain function may return a coroutine.
        return await paced(returned, wait_for_capacity)
    return await returned if inspect.isawaitable(returned) else returned


def emitting_until_closed(context: ToolContext) -> ToolContext:
    """Return the context for the function: events may be emitted from any thread until its call ends.

    Events of a thread are emitted on the loop, in order. Events after the end of the call are dropped.
    """
    loop, home, over = asyncio.get_running_loop(), threading.get_ident(), threading.Event()

    def deliver(event: AgentEvent) -> None:
        if not over.is_set():
            context.emit(event)

    from_threads = ThreadEmitter(deliver, context.wait_for_capacity, over, loop)

    def emit(event: AgentEvent) -> None:
        if threading.get_ident() == home:
            deliver(event)
        else:
            from_threads.emit(event)

    events = None if context.events is None else _CheckedEvents(context.events)
    questions = None if context.questions is None else _CheckedQuestions(context.questions)
    return replace(context, emit=emit, closed=over, events=events, questions=questions)


class _CheckedEvents:
    """Refuses an unusable payload schema before the call waits for the event."""

    def __init__(self, events: Events) -> None:
        self._events = events

    async def receive(
        self, name: str, key: str, schema: JsonObject | None, timeout: float | None
    ) -> Json:
        problem = None if schema is None else problem_of_schema(schema)
        if problem is not None:
            raise EventWaitInvalid(f"schema of the event {name!r}: {problem}")
        return await self._events.receive(name, key, schema, timeout)


class _CheckedQuestions:
    """Refuses an unusable schema before the call waits for the answer."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def approve(self, question: str) -> ApprovalGiven:
        return await self._questions.approve(question)

    async def ask(self, question: str, schema: JsonObject | None) -> Json:
        problem = None if schema is None else problem_of_schema(schema)
        if problem is not None:
            raise QuestionInvalid(f"schema of the answer: {problem}")
        return await self._questions.ask(question, schema)


def is_being_cancelled() -> bool:
    """Whether the current task is being cancelled, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def text_of(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  __str__ is the tool's code as well
        return type(error).__name__
