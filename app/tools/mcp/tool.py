"""A tool of a server, as the runtime calls it."""

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from app.domain.errors import ConfigurationError
from app.domain.json_values import Json, as_object
from app.domain.tools.tool_calls import ToolDescriptor, ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.tools.mcp.authorize_tool import access_ticket
from app.tools.mcp.call import McpCall
from app.tools.mcp.client import (
    AuthorizationNeeded,
    CallTimedOut,
    RequestRefused,
    ServerAway,
)
from app.tools.mcp.listing import ListedTool
from app.tools.mcp.questions import (
    ExchangeRefused,
)
from app.tools.mcp.server import McpServer
from app.tools.result_limits import MAX_ERROR_CHARACTERS, shortened
from app.tools.schemas.subset import subset_validator
from app.tools.schemas.validate import Validator
from app.tools.schemas.value_size import ValueTooLarge, size_of

CANCEL_SECONDS = 5.0
"""Added to a call's time-out: the library stops a call by itself, and tells the server."""


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
                return await McpCall(self.server, self.listed, self.descriptor, context).result(
                    arguments
                )
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


def _short(text: str) -> str:
    return shortened(text, MAX_ERROR_CHARACTERS)
