"""MCP servers and their tools."""

from typing import Annotated, Any, Literal

from pydantic import Field

from app.api.schemas.common import RequestModel, ResponseModel, Time
from app.domain.json_values import JsonObject
from app.queries.mcp_servers import McpServerView, McpToolView

MAX_DIGESTS = 128
ServerState = Literal["idle", "starting", "up", "failing", "given_up"]


class McpToolOut(ResponseModel):
    """A tool that a server lists or has listed."""

    name: str = Field(description="Its name at the server.")
    model_name: str | None = Field(
        description="Its name for models and rules; null if it can't be used."
    )
    description: str = Field(description="What the tool does.")
    effect: Literal["read", "idempotent", "unsafe"] | None = Field(
        description="Whether a call may be repeated; null if it can't be used."
    )
    digest: str = Field(description="Digest of all that the server says about it.")
    is_listed: bool = Field(description="Whether the server lists it now.")
    is_offered: bool = Field(description="Whether agents get it.")
    drift: Literal["new", "changed"] | None = Field(
        description="`new` or `changed` since it was accepted; null if it is as accepted."
    )
    described: dict[str, Any] = Field(description="All that the server says about it.")
    accepted: dict[str, Any] | None = Field(
        description="What was accepted, if the server says something else now; else null."
    )
    accepted_by: str | None = Field(
        description="Who accepted it; null for the first description that was seen."
    )
    accepted_at: Time | None = Field(description="When it was accepted.")
    first_seen_at: Time = Field(description="When it was listed first.")
    last_seen_at: Time = Field(description="When it was listed in this form last.")


class McpProcessOut(ResponseModel):
    """The state of a server in one Holdfast process."""

    worker_id: str = Field(description="Id of the process.")
    state: ServerState = Field(description="Its state there.")
    protocol: str | None = Field(description="Version of the protocol that it speaks.")
    last_error: str | None = Field(description="Why it failed last; null after a start.")
    failures: int = Field(description="Failed starts in a row.")
    starts: int = Field(description="Starts since the process began.")
    instances: int = Field(description="Open connections.")
    updated_at: Time = Field(description="When the process reported it.")


class McpServerOut(ResponseModel):
    """An MCP server of the agents file."""

    id: str
    transport: Literal["stdio", "http"] = Field(description="A program, or an address.")
    state: ServerState = Field(
        description="Its state in all processes together; one that is up counts most. `idle`: not needed now."
    )
    protocol: str | None = Field(description="Version of the protocol that it speaks.")
    version: str | None = Field(description="Its own name and version.")
    last_error: str | None = Field(description="Why it failed last; null after a start.")
    pin: Literal["off", "warn", "require"] = Field(
        description="What happens to tools that are new or changed."
    )
    tools_listed: int = Field(description="Tools that it lists.")
    tools_offered: int = Field(description="Tools that agents get.")
    tools_drifted: int = Field(description="Listed tools that are new or changed.")


class McpServerDetailsOut(McpServerOut):
    """An MCP server with its processes and tools."""

    processes: list[McpProcessOut] = Field(description="Its state in each process.")
    tools: list[McpToolOut] = Field(description="The tools that it lists or has listed.")
    left_out: dict[str, str] = Field(description="Tools that aren't offered, with the reason.")


class AcceptToolsIn(RequestModel):
    """The tools to accept, by the digests that were reviewed."""

    model_config = {"json_schema_extra": {"examples": [{"digests": ["sha256:" + "0a" * 32]}]}}

    digests: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100)]],
        Field(
            min_length=1,
            max_length=MAX_DIGESTS,
            description="Digests of listed tools, as they were read.",
        ),
    ]


class CatalogToolOut(ResponseModel):
    """A tool that agents may name."""

    name: str = Field(description="Its name for models.")
    source: str = Field(description="`function`, or `mcp:` and the server.")
    description: str = Field(description="What the tool does.")
    parameters: dict[str, Any] = Field(description="JSON Schema of its arguments.")
    effect: Literal["read", "idempotent", "unsafe"] = Field(
        description="Whether a call may be repeated."
    )


def server_out(view: McpServerView) -> McpServerOut:
    return McpServerOut.model_validate(_summary(view))


def server_details(view: McpServerView) -> McpServerDetailsOut:
    left_out = view.newest("left_out")
    return McpServerDetailsOut.model_validate(
        {
            **_summary(view),
            "processes": [
                {
                    "worker_id": each.worker,
                    "updated_at": each.updated_at,
                    **{
                        name: each.state[name]
                        for name in (
                            "state",
                            "protocol",
                            "last_error",
                            "failures",
                            "starts",
                            "instances",
                        )
                    },
                }
                for each in view.reports
            ],
            "tools": [_tool(each) for each in view.tools],
            "left_out": left_out or {},
        }
    )


def _summary(view: McpServerView) -> JsonObject:
    spec = view.server.spec
    listed = [each for each in view.tools if each.stored.is_listed]
    return {
        "id": spec.name,
        "transport": "stdio" if spec.url is None else "http",
        "state": view.state.value,
        "protocol": view.newest("protocol"),
        "version": view.newest("version"),
        "last_error": view.newest("last_error"),
        "pin": spec.pin.value,
        "tools_listed": len(listed),
        "tools_offered": sum(each.is_offered for each in view.tools),
        "tools_drifted": sum(each.stored.drift is not None for each in listed),
    }


def _tool(view: McpToolView) -> JsonObject:
    stored = view.stored
    return {
        "name": view.name,
        "model_name": view.model_name,
        "description": str(stored.described.get("description") or ""),
        "effect": None if view.effect is None else view.effect.value,
        "digest": stored.digest,
        "is_listed": stored.is_listed,
        "is_offered": view.is_offered,
        "drift": stored.drift,
        "described": dict(stored.described),
        "accepted": stored.accepted if stored.drift == "changed" else None,
        "accepted_by": stored.accepted_by,
        "accepted_at": stored.accepted_at,
        "first_seen_at": stored.first_seen,
        "last_seen_at": stored.last_seen,
    }
