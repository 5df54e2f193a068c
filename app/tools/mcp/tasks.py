"""Calls that a server continues as a task: followed for a moment, and then waited for by a suspended run.

Nothing is held open. The ticket of kind `event` expires when the task is to be looked at again, and carries the
task's id. So a call of hours survives restarts of both sides, and a server that is away meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from app.clock import sleep
from app.domain.json_values import JsonObject
from app.domain.signals import EventWait
from app.domain.structs import replace
from app.domain.tools.tool_calls import ResumeMode, SuspensionRequest
from app.runtime.ports.call_waits import CarriedReply
from app.runtime.tool_calls.call_events import WAIT_ACTION
from app.tools.mcp.client import InputRequired, ServerAnswer, TaskHandle, ToolRequest
from app.tools.mcp.names import visible
from app.tools.result_limits import shortened

FOLLOW_SECONDS = 10.0
"""A task is followed for so long before the run is suspended."""
QUICK_POLL_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0
"""The pauses between two looks become longer up to this, unless the server wishes a longer one."""
MAX_LOOKS = 1_000
SIGNAL = "mcp_task"
"""A signal of this name, with the task's id as its key, makes the run look at once."""
CARRIED = "task"
_MAX_MESSAGE_CHARACTERS = 500

Answer: TypeAlias = ServerAnswer | InputRequired | TaskHandle


class WaitForTask(Struct, frozen=True, kw_only=True):
    """What the ticket of a waiting call carries."""

    task: str
    tool_digest: str
    looks: int = 0

    def to_json(self) -> JsonObject:
        return {CARRIED: self.task, "tool_digest": self.tool_digest, "looks": self.looks}


def task_of(replies: Sequence[CarriedReply]) -> str | None:
    """The task that the call waits for, or that has asked a question."""
    task = replies[-1].carry.get(CARRIED) if replies else None
    return task if isinstance(task, str) else None


def is_look(reply: CarriedReply) -> bool:
    """Whether the ticket was a wait, and no question."""
    return "looks" in reply.carry


def new_questions(required: InputRequired, replies: Sequence[CarriedReply]) -> Answer:
    """The questions without those that were answered. A task may show these for a while."""
    if required.task is None:
        return required
    answered = {
        key
        for reply in replies
        if reply.carry.get(CARRIED) == required.task.id
        for key in reply.carry.get("keys", ())
    }
    left = {key: each for key, each in required.questions.items() if key not in answered}
    return replace(required, questions=left) if left else required.task


async def followed(
    handle: TaskHandle,
    request: ToolRequest,
    send: Callable[[ToolRequest], Awaitable[Answer]],
    *,
    may_suspend: bool,
) -> Answer:
    """Look at a task as often as the server wishes, until it ends, or until the run is better suspended."""
    end = asyncio.get_running_loop().time() + FOLLOW_SECONDS
    while True:
        is_late = asyncio.get_running_loop().time() + handle.poll_seconds > end
        if may_suspend and (is_late or handle.poll_seconds > QUICK_POLL_SECONDS):
            return handle
        await sleep(handle.poll_seconds)
        answer = await send(replace(request, task=handle.id, replies=None, state=None))
        if not isinstance(answer, TaskHandle):
            return answer
        handle = answer


def suspension_for_task(
    handle: TaskHandle, server: str, tool_digest: str, looks: int
) -> SuspensionRequest:
    """The suspension until the task is to be looked at again."""
    growing = min(2.0 ** min(looks, 20), MAX_PAUSE_SECONDS)
    about = "" if handle.message is None else f": {visible(handle.message)}"
    wait = WaitForTask(task=handle.id, tool_digest=tool_digest, looks=looks + 1)
    return SuspensionRequest(
        shortened(f"{server} works on a task{about}", _MAX_MESSAGE_CHARACTERS),
        action=WAIT_ACTION,
        resume_mode=ResumeMode.PASS_DECISION_TO_TOOL,
        event=EventWait(
            name=SIGNAL, key=handle.id, number=looks, timeout=max(handle.poll_seconds, growing)
        ),
        carry=wait.to_json(),
    )
