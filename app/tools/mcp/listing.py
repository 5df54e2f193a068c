"""The tools of one server: which of its tools are offered, in what form, and why others are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from app.domain.json_values import JsonObject, as_object, compact, storable
from app.domain.tools.tool_calls import Effect
from app.tools.mcp.names import digest_of, model_name, visible
from app.tools.mcp.server_spec import MAX_TOOLS, Effects, McpServerSpec, Pin
from app.tools.result_limits import shortened
from app.tools.schemas.subset import problem_of_size

MAX_NAME_CHARACTERS = 200
MAX_DESCRIPTION_BYTES = 64_000
"""The size of all that a server says about one tool."""
MAX_LISTING_BYTES = 1_000_000
MAX_SHOWN_CHARACTERS = 8_000
"""The characters of a description that models read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool that a server lists. `described` is all that the server says about it."""

    name: str
    model_name: str
    description: str
    parameters: JsonObject
    effect: Effect
    digest: str
    described: JsonObject = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTool:
    """A tool as the database has it. `accepted` is the description that a person accepted, or the first one."""

    name: str
    digest: str
    described: JsonObject = field(repr=False)
    is_listed: bool = True
    first_seen: datetime
    last_seen: datetime
    accepted_digest: str | None = None
    accepted: JsonObject | None = field(default=None, repr=False)
    accepted_by: str | None = None
    accepted_at: datetime | None = None

    @property
    def drift(self) -> str | None:
        """`new` or `changed` since the server's tools were accepted, or None."""
        if self.accepted_digest is None:
            return "new"
        return None if self.accepted_digest == self.digest else "changed"


class ToolListings(Protocol):
    """Where listings are stored, for all processes."""

    async def load(self) -> Mapping[str, Sequence[StoredTool]]:
        """The stored tools of all servers, by server."""

    async def save(
        self, server: str, tools: Mapping[str, JsonObject], *, is_whole: bool
    ) -> Sequence[StoredTool]:
        """Store the tools that a server lists, with what it says about them, by name.

        The first listing of a server counts as accepted, but by no person. A list that `is_whole` has all tools;
        another subject may see other tools.
        """


class Listing(Struct, frozen=True, kw_only=True):
    """The usable tools of a server by their own name, and why others are left out."""

    tools: Mapping[str, ListedTool] = {}
    left_out: Mapping[str, str] = {}
    fresh_for: float | None = None


def listing_of(
    spec: McpServerSpec, described: Sequence[JsonObject], fresh_for: float | None = None
) -> Listing:
    """Choose the usable tools of those that a server describes."""
    tools: dict[str, ListedTool] = {}
    left_out: dict[str, str] = {}
    size = 0
    for each in described:
        name = storable(each.get("name"))
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
            continue
        if name in tools or not spec.has(name):
            continue
        reason = _problem(each)
        size += len(compact(each))
        if reason is None and size > MAX_LISTING_BYTES:
            reason = f"all its tools together have more than {MAX_LISTING_BYTES} bytes"
        if reason is None and len(tools) >= MAX_TOOLS:
            reason = f"a server offers at most {MAX_TOOLS} tools: name the needed ones in `tools`"
        if reason is None:
            tools[name] = _listed(spec, name, storable(each))
        else:
            left_out[name] = reason
    return Listing(tools=tools, left_out=left_out, fresh_for=fresh_for)


def _problem(described: JsonObject) -> str | None:
    if len(compact(described)) > MAX_DESCRIPTION_BYTES:
        return f"its description has more than {MAX_DESCRIPTION_BYTES} bytes"
    schema = as_object(described.get("inputSchema"))
    if schema is None or schema.get("type", "object") != "object":
        return "its inputSchema doesn't describe an object"
    if (as_object(described.get("execution")) or {}).get("taskSupport") == "required":
        return "it runs as a task of the server only, which isn't supported"
    return problem_of_size(schema)


def _listed(spec: McpServerSpec, name: str, described: JsonObject) -> ListedTool:
    text = visible(str(described.get("description") or described.get("title") or name))
    return ListedTool(
        name=name,
        model_name=model_name(spec.name, name),
        description=shortened(text, MAX_SHOWN_CHARACTERS),
        parameters={"properties": {}, **described["inputSchema"], "type": "object"},
        effect=_effect(spec, as_object(described.get("annotations")) or {}),
        digest=digest_of(described),
        described=described,
    )


def _effect(spec: McpServerSpec, hints: Mapping[str, Any]) -> Effect:
    """The effect by the server's hints, if the settings believe them."""
    if spec.effects is Effects.UNSAFE:
        return Effect.UNSAFE
    if hints.get("readOnlyHint") is True:
        return Effect.READ
    return Effect.IDEMPOTENT if hints.get("idempotentHint") is True else Effect.UNSAFE


def offered(
    spec: McpServerSpec, listing: Listing, stored: Mapping[str, StoredTool]
) -> Mapping[str, ListedTool]:
    """The tools that agents get. With `pin = "require"`, only those whose description a person accepted."""
    if spec.pin is not Pin.REQUIRE:
        return listing.tools
    return {
        name: tool
        for name, tool in listing.tools.items()
        if (known := stored.get(name)) is not None
        and known.accepted_by is not None
        and known.accepted_digest == tool.digest
    }
