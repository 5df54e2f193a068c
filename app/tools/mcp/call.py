"""One call of a tool: its questions, its task, and what a broken connection means for it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog
from msgspec import Struct

from app.domain.errors import HoldfastError, OutcomeUnknown
from app.domain.json_values import JsonObject
from app.domain.structs import replace
from app.domain.tools.tool_calls import ToolDescriptor, ToolResult
from app.runtime.ports.call_waits import CarriedReply
from app.runtime.ports.tool_context import ToolContext
from app.tools.mcp.authorize_tool import is_about_access
from app.tools.mcp.client import (
    AuthorizationNeeded,
    CallTimedOut,
    ConnectionLost,
    InputRequired,
    RequestRefused,
    ServerAway,
    TaskGone,
    TaskHandle,
    ToolRequest,
)
from app.tools.mcp.listing import ListedTool
from app.tools.mcp.oauth.token_store import Holder
from app.tools.mcp.questions import (
    Asked,
    CallDialogue,
    ExchangeRefused,
    asked_for,
    replies_of,
    suspension_for,
)
from app.tools.mcp.results import tool_result, with_files
from app.tools.mcp.server import McpServer
from app.tools.mcp.server_spec import Elicitation
from app.tools.mcp.tasks import (
    MAX_LOOKS,
    Answer,
    followed,
    is_look,
    new_questions,
    suspension_for_task,
    task_of,
)
from app.tools.result_limits import shortened

PROGRESS_INTERVAL_SECONDS = 0.25
AWAY_SECONDS = 2.0
"""The shortest pause before a task of a server that is away is looked at again."""
_INVALID_PARAMS = -32602
_STATE_FORGOTTEN = "state"

log = structlog.get_logger(__name__)


class McpCall(Struct, frozen=True):
    """A call for one run. It begins, or continues with what people have replied."""

    server: McpServer
    listed: ListedTool
    tool: ToolDescriptor
    context: ToolContext

    @property
    def holder(self) -> Holder:
        """Whose access token is used."""
        run = self.context.run
        return self.server.own_holder(Holder(run.tenant, run.started_by))

    async def result(self, arguments: JsonObject) -> ToolResult:
        if not await self.server.is_as_accepted(self.listed, self.holder):
            raise ExchangeRefused("the tool has changed, and a person has to accept it first")
        carried = [] if self.context.carried is None else await self.context.carried.replies()
        replies = [reply for reply in carried if not is_about_access(reply)]
        dialogue = self._dialogue(replies)
        request = ToolRequest(
            tool=self.listed.name,
            arguments=arguments,
            meta=self._meta(),
            dialogue=dialogue,
            on_progress=_Progress(self.context).show,
        )
        asked = None
        if replies and replies[-1].carry.get("asked_in_call") is None:
            last = replies[-1]
            if last.carry.get("tool_digest") != self.listed.digest:
                raise ExchangeRefused("the tool has changed since it asked")
            if not is_look(last):
                asked = Asked.from_json(last.carry)
                request = replace(request, state=asked.state, replies=replies_of(asked, last))
            request = replace(request, task=task_of(replies))
        answer, asked = await self._answer(request, asked)
        if isinstance(answer, InputRequired):
            answer = new_questions(answer, replies)
        if isinstance(answer, TaskHandle):
            answer = await self._of_task(answer, request, replies)
        if isinstance(answer, TaskHandle):
            return self._waiting(answer, replies)
        if isinstance(answer, InputRequired):
            return self._suspended(answer, asked or _last_question(replies))
        suspension = None if dialogue is None else dialogue.suspension(self.server.spec.name)
        if suspension is not None:
            return ToolResult.suspended(self.tool.name, suspension)
        result = tool_result(self.tool, answer, self.server.spec.max_result_bytes)
        return await with_files(result, answer, self.context)

    async def _of_task(
        self,
        handle: TaskHandle,
        request: ToolRequest,
        replies: Sequence[CarriedReply],
    ) -> Answer:
        """The answer of a task, or its handle if the run is suspended meanwhile. Cancelling the call cancels it."""

        async def look(again: ToolRequest) -> Answer:
            answer = await self._look(again, handle.id)
            return new_questions(answer, replies) if isinstance(answer, InputRequired) else answer

        try:
            may_suspend = self.context.carried is not None
            return await followed(handle, request, look, may_suspend=may_suspend)
        except asyncio.CancelledError:
            with suppress(HoldfastError, TimeoutError):
                await self.server.cancel_task(handle.id, self.context.run.thread_id, self.holder)
            raise

    async def _look(self, request: ToolRequest, task: str) -> Answer:
        """Ask for a task. It goes on without a connection, so a server that is away is asked again later."""
        try:
            return await self._send(request)
        except TaskGone as error:
            raise self._task_lost("it no longer knows its task") from error
        except AuthorizationNeeded:
            raise
        except (ServerAway, CallTimedOut) as error:
            if self.context.carried is None:
                raise
            message = self.context.redact(str(error))
            return TaskHandle(id=task, poll_seconds=AWAY_SECONDS, message=message)

    def _waiting(self, handle: TaskHandle, replies: Sequence[CarriedReply]) -> ToolResult:
        looks = sum(is_look(reply) for reply in replies)
        if looks >= MAX_LOOKS:
            raise self._task_lost(f"its task did not end although it was looked at {looks} times")
        name = self.server.spec.name
        suspension = suspension_for_task(handle, name, self.listed.digest, looks)
        return ToolResult.suspended(self.tool.name, suspension)

    def _task_lost(self, why: str) -> HoldfastError | ExchangeRefused:
        """The error for a task without a known end."""
        if self.listed.effect.may_be_rerun:
            return ExchangeRefused(why)
        return OutcomeUnknown(f"the MCP server {self.server.spec.name!r}: {why}")

    async def _answer(
        self, request: ToolRequest, asked: Asked | None
    ) -> tuple[Answer, Asked | None]:
        """The server's answer. If it has forgotten its question, a safe call begins again, once."""
        if request.task is not None:
            return await self._look(request, request.task), asked
        try:
            return await self._send(request), asked
        except RequestRefused as error:
            is_forgotten = (
                error.code == _INVALID_PARAMS and _STATE_FORGOTTEN in error.message.lower()
            )
            if asked is None or not is_forgotten:
                raise
            if not self.listed.effect.may_be_rerun or asked.restarts:
                raise ExchangeRefused(
                    "its question has expired there; nothing was done with the answer"
                ) from error
        again = replace(asked, restarts=asked.restarts + 1, rounds=0)
        return await self._send(replace(request, state=None, replies=None)), again

    async def _send(self, request: ToolRequest) -> Answer:
        """Send a request; a call that is safe to repeat is repeated once after a broken connection."""
        thread, holder = self.context.run.thread_id, self.holder
        try:
            return await self.server.call(request, thread, holder)
        except ConnectionLost as error:
            if request.task is None and not self.listed.effect.may_be_rerun:
                why = f"the connection to the MCP server {self.server.spec.name!r} broke"
                raise OutcomeUnknown(why) from error
            log.info("mcp_call_repeated", server=self.server.spec.name, tool=self.listed.name)
        try:
            return await self.server.call(request, thread, holder)
        except ConnectionLost as error:
            raise ServerAway("the connection broke twice") from error

    def _suspended(self, required: InputRequired, before: Asked | None) -> ToolResult:
        if required.unsupported is not None:
            raise ExchangeRefused(required.unsupported)
        if self.server.spec.elicitation is Elicitation.DECLINE or self.context.carried is None:
            raise ExchangeRefused("it asks a person, which is switched off here")
        asked = asked_for(required, self.listed.digest, before)
        suspension = suspension_for(required.questions, asked, self.server.spec.name)
        return ToolResult.suspended(self.tool.name, suspension)

    def _dialogue(self, replies: list[CarriedReply]) -> CallDialogue | None:
        """Questions in mid-call are asked only if the call may be repeated after the decision."""
        if self.context.carried is None or not self.listed.effect.may_be_rerun:
            return None
        return CallDialogue(self.listed.digest, replies)

    def _meta(self) -> JsonObject:
        if not self.server.spec.send_context:
            return {}
        meta = {
            "holdfast/run": self.context.run.id,
            "holdfast/call": self.context.call_id,
            "holdfast/idempotency-key": self.context.idempotency_key,
            "holdfast/tenant": self.context.run.tenant,
        }
        if self.context.agent is not None:
            meta["holdfast/agent"] = self.context.agent.id
        return meta


def _last_question(replies: Sequence[CarriedReply]) -> Asked | None:
    """What the last ticket with a question carried. A task may ask again after it was looked at."""
    asked = [reply for reply in replies if not is_look(reply)]
    return Asked.from_json(asked[-1].carry) if asked else None


class _Progress:
    """Shows a call's progress, four times a second at most."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._now = asyncio.get_running_loop().time
        self._shown_at = float("-inf")

    def show(self, loaded: float, total: float | None, message: str | None) -> None:
        now = self._now()
        if now - self._shown_at < PROGRESS_INTERVAL_SECONDS or self._context.closed.is_set():
            return
        self._shown_at = now
        fraction = loaded / total if total else None
        text = None if message is None else shortened(message, 500)
        self._context.progress(fraction, text, loaded=loaded, total=total)
