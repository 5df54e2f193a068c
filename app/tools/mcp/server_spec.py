"""The settings of one MCP server, as the agents file has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from app.domain.rules.globs import Glob

MAX_TOOLS = 128
"""The most tools that one server offers."""


class Effects(StrEnum):
    """Where the effect of a tool comes from: from the server's hints, or always `unsafe`."""

    HINTS = "hints"
    UNSAFE = "unsafe"


class Pin(StrEnum):
    """What happens to a tool that was added or changed since its description was accepted."""

    OFF = "off"
    WARN = "warn"
    REQUIRE = "require"


class InstanceScope(StrEnum):
    """Whether all threads of a process share one instance of the server, or each thread has its own."""

    PROCESS = "process"
    THREAD = "thread"


class Elicitation(StrEnum):
    """Whether a question of the server becomes a ticket, or is declined."""

    TICKET = "ticket"
    DECLINE = "decline"


class Grant(StrEnum):
    """Whose access token is used: Holdfast's own, or that of the subject who started the run."""

    CLIENT_CREDENTIALS = "client_credentials"
    AUTHORIZATION_CODE = "authorization_code"


class OAuthSpec(Struct, frozen=True, kw_only=True):
    """How access tokens for a server are got."""

    issuer: str
    """The address of the authorization server. The client's secret is sent there only."""
    client_id: str
    client_secret_env: str | None = None
    scopes: tuple[str, ...] = ()
    grant: Grant = Grant.CLIENT_CREDENTIALS


@dataclass(frozen=True, kw_only=True)
class McpServerSpec:
    """One server: a program that is started, or an address. Times are in seconds."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: tuple[str, ...] = ()
    """Variables of this process that the program gets, too."""
    cwd: Path | None = None
    url: str | None = None
    auth_env: str | None = None
    """The variable that has the bearer token."""
    oauth: OAuthSpec | None = None
    tools: tuple[str, ...] = ("*",)
    approval: tuple[str, ...] = ()
    """Globs of the tools whose calls need approval."""
    effects: Effects = Effects.HINTS
    pin: Pin = Pin.OFF
    startup_timeout: float = 10.0
    timeout: float = 60.0
    idle: float = 300.0
    max_result_bytes: int = 100_000
    scope: InstanceScope = InstanceScope.PROCESS
    elicitation: Elicitation = Elicitation.TICKET
    send_context: bool = True
    """Whether a call names its run, agent and tenant to the server."""

    def has(self, tool: str) -> bool:
        """Whether the settings let agents use this tool of the server."""
        return any(glob.fits(tool) for glob in self._tools)

    def asks_for(self, tool: str) -> bool:
        """Whether calls of this tool need approval."""
        return any(glob.fits(tool) for glob in self._approval)

    @cached_property
    def _tools(self) -> Sequence[Glob]:
        return [Glob(each) for each in self.tools]

    @cached_property
    def _approval(self) -> Sequence[Glob]:
        return [Glob(each) for each in self.approval]
