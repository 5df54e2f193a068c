"""Access to a server that a person has to give: the tool that asks for it, and the ticket."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from app.domain.json_values import Json, as_object
from app.domain.tickets.tickets import VISIT_ACTION
from app.domain.tools.tool_calls import (
    Effect,
    ResumeMode,
    SuspensionRequest,
    ToolDescriptor,
    ToolResult,
)
from app.runtime.ports.call_waits import CarriedReply
from app.runtime.ports.tool_context import ToolContext
from app.tools.mcp.client import AuthorizationNeeded
from app.tools.mcp.names import model_name
from app.tools.mcp.oauth.server_authorization import ServerAuthorization

MAX_TICKETS = 10
"""The most tickets of one call that ask for access."""
CARRIED = "authorization"


def is_about_access(reply: CarriedReply) -> bool:
    return CARRIED in reply.carry


def access_ticket(
    authorization: ServerAuthorization, replies: list[CarriedReply], name: str, context: ToolContext
) -> ToolResult:
    """The result of a call that waits until a person has given access; an error if that was refused."""
    server = authorization.spec.name
    asked = [reply for reply in replies if is_about_access(reply)]
    if context.carried is None:
        return _no_access(
            name, f"a task can't ask for access to {server!r}: run the tool in its run"
        )
    if asked and asked[-1].action != "accept":
        return _no_access(name, f"a person did not give access to the MCP server {server!r}")
    if len(asked) >= MAX_TICKETS:
        return _no_access(
            name, f"access to the MCP server {server!r} was asked {MAX_TICKETS} times"
        )
    subject = authorization.holder_for(context.run).subject
    return ToolResult.suspended(
        name,
        SuspensionRequest(
            f"The MCP server {server!r} needs access to an account of {subject!r} (visit {authorization.link},"
            " then respond)",
            action=VISIT_ACTION,
            resume_mode=ResumeMode.PASS_DECISION_TO_TOOL,
            carry={CARRIED: True},
        ),
    )


def _no_access(name: str, why: str) -> ToolResult:
    return ToolResult.error_with_code(name, "mcp_access_missing", why, may_be_retried=False)


@dataclass(frozen=True)
class AuthorizeTool:
    """Offered instead of a server's tools as long as they can't be listed without access.

    Later it is not offered, but still there: a call that has waited for access returns.
    """

    authorization: ServerAuthorization
    is_offered: bool

    @cached_property
    def descriptor(self) -> ToolDescriptor:
        server = self.authorization.spec.name
        return ToolDescriptor(
            name=model_name(server, "authorize"),
            description=(
                f"Ask for access to {server!r}. Its tools are not known before. A person is asked; afterwards you see"
                " the tools and can call them."
            ),
            parameters={"type": "object", "properties": {}, "additionalProperties": False},
            effect=Effect.READ,
            source=server,
            is_offered=self.is_offered,
        )

    def invalid_arguments(self, arguments: Json) -> str | None:
        is_empty = arguments is None or as_object(arguments) == {}
        return None if is_empty else "the tool has no arguments"

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        authorization, name = self.authorization, self.descriptor.name
        try:
            await authorization.source(authorization.holder_for(context.run)).token()
        except AuthorizationNeeded:
            replies = [] if context.carried is None else await context.carried.replies()
            return access_ticket(authorization, replies, name, context)
        return ToolResult.success(name, None, "Access was given. You see the tools from now on.")
