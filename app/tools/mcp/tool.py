"""A tool of a server, as the runtime calls it."""

import asyncio
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import structlog

from app.domain.errors import ConfigurationError, OutcomeUnknown
from app.domain.json_values import Json, JsonObject, as_object
from app.domain.tools.tool_calls import ToolDescriptor, ToolResult
from app.runtime.ports.call_waits import CarriedReply
from app.runtime.ports.tool_context import ToolContext
from app.tools.mcp.authorize_tool import access_ticket, is_about_access
from app.tools.mcp.client import (
    AuthorizationNeeded,
    CallTimedOut,
    ConnectionLost,
    InputRequired,
    RequestRefused,
    ServerAnswer,
    ServerAway,
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
from app.tools.mcp.result_files import with_files
from app.tools.mcp.results import tool_result
from app.tools.mcp.server import McpServer
from app.tools.mcp.server_spec import Elicitation
from app.tools.result_limits import MAX_ERROR_CHARACTERS, shortened
from app.tools.schemas.subset import subset_validator
from app.tools.schemas.validate import Validator
from app.tools.schemas.value_size import ValueTooLarge, size_of

PROGRESS_INTERVAL_SECONDS = 0.25
CANCEL_SECONDS = 5.0
"""Added to a call's time-out: the library stops a call by itself, and tells the server."""
_INVALID_PARAMS = -32602
_STATE_FORGOTTEN = "state"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class McpTool:
    """A tool of one server. It holds nothing between calls."""

    server: McpServer
    listed: ListedTool

    @cached_property
    def descriptor(self) -> ToolDescriptor:
        return ToolDescriptor(
            name=self.listed.model_name,
            description=self.listed.description,
            parameters=self.listed.parameters,
            effect=self.listed.effect,
            timeout=self.server.spec.timeout,
            digest=self.listed.digest,
            source=self.server.spec.name,
        )

    # --- before a call --------------------------------------------------------------------------

    @cached_property
    def _validator(self) -> Validator | None:
        """None for a schema beyond our bounds: then only the server checks the arguments."""
        try:
            return subset_validator(self.listed.parameters)
        except ConfigurationError:
            return None

    def invalid_arguments(self, arguments: Json) -> str | None:
        given = {} if arguments is None else arguments
        if self._validator is not None:
            return self._validator.problem(given)
        try:
            size_of(given)
        except ValueTooLarge as error:
            return str(error)
        return None if as_object(given) is not None else "the arguments must be an object"

    @property
    def needs_approval(self) -> bool:
        return self.server.spec.asks_for(self.listed.name)

    async def approval_question(
        self, arguments: dict[str, Any], context: ToolContext
    ) -> str | None:
        return f"Tool '{self.descriptor.name}' suspended: awaiting approval"

    # --- a call ---------------------------------------------------------------------------------

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        spec, name = self.server.spec, self.descriptor.name
        try:
            async with asyncio.timeout(spec.timeout + CANCEL_SECONDS):
                return await self._call(arguments, context)
        except (CallTimedOut, TimeoutError):
            return self._timed_out()
        except AuthorizationNeeded:
            return await self._without_access(context)
        except ServerAway as error:
            why = f"the MCP server {spec.name!r} is away: {context.redact(str(error))}"
            return ToolResult.error_with_code(name, "mcp_server_away", _short(why))
        except ExchangeRefused as error:
            why = f"the MCP server {spec.name!r} was not used further: {error}"
            return ToolResult.error(name, _short(why), may_be_retried=False)
        except RequestRefused as error:
            why = context.redact(error.message)
            return ToolResult.error(name, _short(f"the MCP server refused the call: {why}"))

    async def _without_access(self, context: ToolContext) -> ToolResult:
        authorization = self.server.authorization
        assert authorization is not None
        replies = [] if context.carried is None else await context.carried.replies()
        return access_ticket(authorization, replies, self.descriptor.name, context)

    def _timed_out(self) -> ToolResult:
        text = f"Timed out after {self.server.spec.timeout:g} s"
        may_repeat = self.listed.effect.may_be_rerun
        if not may_repeat:
            text += "; whether it took effect is unknown"
        return ToolResult.error(self.descriptor.name, text, may_be_retried=may_repeat)

    async def _call(self, arguments: JsonObject, context: ToolContext) -> ToolResult:
        if not await self.server.is_as_accepted(self.listed, self._holder(context)):
            raise ExchangeRefused("the tool has changed, and a person has to accept it first")
        carried = [] if context.carried is None else await context.carried.replies()
        replies = [reply for reply in carried if not is_about_access(reply)]
        dialogue = self._dialogue(context, replies)
        request = ToolRequest(
            tool=self.listed.name,
            arguments=arguments,
            meta=self._meta(context),
            dialogue=dialogue,
            on_progress=_Progress(context).show,
        )
        asked = None
        if replies and replies[-1].carry.get("asked_in_call") is None:
            asked = Asked.from_json(replies[-1].carry)
            if asked.tool_digest != self.listed.digest:
                raise ExchangeRefused("the tool has changed since it asked")
            request = replace(request, state=asked.state, replies=replies_of(asked, replies[-1]))
        answer, asked = await self._answer(request, context, asked)
        if isinstance(answer, InputRequired):
            return self._suspended(answer, context, asked)
        suspension = None if dialogue is None else dialogue.suspension(self.server.spec.name)
        if suspension is not None:
            return ToolResult.suspended(self.descriptor.name, suspension)
        result = tool_result(self.descriptor, answer, self.server.spec.max_result_bytes)
        return await with_files(result, answer, context)

    async def _answer(
        self, request: ToolRequest, context: ToolContext, asked: Asked | None
    ) -> tuple[ServerAnswer | InputRequired, Asked | None]:
        """The server's answer. If it has forgotten its question, a safe call begins again, once."""
        try:
            return await self._send(request, context), asked
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
        return await self._send(replace(request, state=None, replies=None), context), again

    async def _send(
        self, request: ToolRequest, context: ToolContext
    ) -> ServerAnswer | InputRequired:
        """Send a request; a call that is safe to repeat is repeated once after a broken connection."""
        thread, holder = context.run.thread_id, self._holder(context)
        try:
            return await self.server.call(request, thread, holder)
        except ConnectionLost as error:
            if not self.listed.effect.may_be_rerun:
                why = f"the connection to the MCP server {self.server.spec.name!r} broke"
                raise OutcomeUnknown(why) from error
            log.info("mcp_call_repeated", server=self.server.spec.name, tool=self.listed.name)
        try:
            return await self.server.call(request, thread, holder)
        except ConnectionLost as error:
            raise ServerAway("the connection broke twice") from error

    def _holder(self, context: ToolContext) -> Holder:
        return self.server.own_holder(Holder(context.run.tenant, context.run.started_by))

    def _suspended(
        self, required: InputRequired, context: ToolContext, before: Asked | None
    ) -> ToolResult:
        if required.unsupported is not None:
            raise ExchangeRefused(required.unsupported)
        if self.server.spec.elicitation is Elicitation.DECLINE or context.carried is None:
            raise ExchangeRefused("it asks a person, which is switched off here")
        asked = asked_for(required, self.listed.digest, before)
        suspension = suspension_for(required.questions, asked, self.server.spec.name)
        return ToolResult.suspended(self.descriptor.name, suspension)

    def _dialogue(self, context: ToolContext, replies: list[CarriedReply]) -> CallDialogue | None:
        """Questions in mid-call are asked only if the call may be repeated after the decision."""
        if context.carried is None or not self.listed.effect.may_be_rerun:
            return None
        return CallDialogue(self.listed.digest, replies)

    def _meta(self, context: ToolContext) -> JsonObject:
        if not self.server.spec.send_context:
            return {}
        meta = {
            "holdfast/run": context.run.id,
            "holdfast/call": context.call_id,
            "holdfast/idempotency-key": context.idempotency_key,
            "holdfast/tenant": context.run.tenant,
        }
        if context.agent is not None:
            meta["holdfast/agent"] = context.agent.id
        return meta


def _short(text: str) -> str:
    return shortened(text, MAX_ERROR_CHARACTERS)


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
