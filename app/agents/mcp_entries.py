"""The table of an MCP server in the agents file: `[mcp.NAME]`."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from app.agents.config_entry import ConfigEntry, GlobText, Name, bare_address
from app.agents.config_errors import ConfigErrors
from app.domain.agents.mcp_references import MCP_SEPARATOR
from app.domain.rules.globs import BadGlob, Glob
from app.domain.suggestions import did_you_mean
from app.tools.mcp.names import prefix_of
from app.tools.mcp.server_spec import (
    Effects,
    Elicitation,
    Grant,
    InstanceScope,
    McpServerSpec,
    OAuthSpec,
    Pin,
)

_DEFAULTS = McpServerSpec(name="")
_SERVER_NAME = re.compile(r"(?=.{1,32}$)[A-Za-z0-9]+([_-][A-Za-z0-9]+)*")
_ALL = ("*",)


Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


Address = Annotated[str, Field(pattern=r"^https?://[^\s/]+"), AfterValidator(bare_address)]
Scope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5B\x5D-\x7E]+$")]
"""A scope by RFC 6749: printable, without spaces."""


class OAuthEntry(ConfigEntry):
    """How access tokens for a server are got: `[mcp.NAME.oauth]`."""

    issuer: Address
    client_id: Name
    client_secret_env: Variable | None = None
    scopes: list[Scope] = []
    grant: Literal["client_credentials", "authorization_code"] = "client_credentials"

    @model_validator(mode="after")
    def _must_have_a_secret_for_its_own_tokens(self) -> "OAuthEntry":
        if self.grant == "client_credentials" and self.client_secret_env is None:
            raise ValueError(
                "needs client_secret_env, the variable with the client's secret, unless"
                ' grant = "authorization_code"'
            )
        return self


class McpEntry(ConfigEntry):
    """A server: a program (`command`) or an address (`url`). Seconds."""

    command: Name | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    env_from: list[Variable] = []
    cwd: Name | None = None
    url: Address | None = None
    auth_env: Variable | None = None
    oauth: OAuthEntry | None = None
    tools: list[GlobText] = Field(default=["*"], min_length=1)
    approval: Literal["always", "never"] | list[GlobText] = "never"
    effects: Literal["hints", "unsafe"] | None = None
    pin: Literal["off", "warn", "require"] = "off"
    startup_timeout: float = Field(default=_DEFAULTS.startup_timeout, gt=0, le=60)
    timeout: float = Field(default=_DEFAULTS.timeout, gt=0, le=3600)
    idle: float = Field(default=_DEFAULTS.idle, gt=0, le=86_400)
    max_result_bytes: int = Field(default=_DEFAULTS.max_result_bytes, ge=1, le=1 << 20)
    scope: Literal["process", "thread"] = "process"
    elicitation: Literal["ticket", "decline"] = "ticket"
    send_context: bool = True

    @model_validator(mode="after")
    def _must_be_a_program_or_an_address(self) -> "McpEntry":
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either command or url; write one of them")
        of_program = {"args", "env", "env_from", "cwd", "scope"} & self.model_fields_set
        if self.url is not None and of_program:
            raise ValueError(
                f"{min(of_program)} belongs to a command, and this server has a url; remove it"
            )
        if self.command is not None and self.auth_env is not None:
            raise ValueError("auth_env belongs to a url; name the variable in env_from")
        if self.oauth is not None and (self.command is not None or self.auth_env is not None):
            raise ValueError("oauth belongs to a url without auth_env; remove one of them")
        return self


def mcp_spec(name: str, entry: McpEntry, folder: Path) -> McpServerSpec:
    """The server that an entry describes. Its working folder is relative to that of the agents file."""
    by_default = Effects.HINTS if entry.url is None else Effects.UNSAFE
    asks_by_word = {"always": _ALL, "never": ()}
    return McpServerSpec(
        name=name,
        command=entry.command,
        args=tuple(entry.args),
        env=entry.env,
        env_from=tuple(entry.env_from),
        cwd=folder if entry.cwd is None else folder / Path(entry.cwd).expanduser(),
        url=entry.url,
        auth_env=entry.auth_env,
        oauth=None if entry.oauth is None else _oauth_spec(entry.oauth),
        tools=tuple(entry.tools),
        approval=asks_by_word[entry.approval]
        if isinstance(entry.approval, str)
        else tuple(entry.approval),
        effects=by_default if entry.effects is None else Effects(entry.effects),
        pin=Pin(entry.pin),
        startup_timeout=entry.startup_timeout,
        timeout=entry.timeout,
        idle=entry.idle,
        max_result_bytes=entry.max_result_bytes,
        scope=InstanceScope(entry.scope),
        elicitation=Elicitation(entry.elicitation),
        send_context=entry.send_context,
    )


def _oauth_spec(entry: OAuthEntry) -> OAuthSpec:
    return OAuthSpec(
        issuer=entry.issuer,
        client_id=entry.client_id,
        client_secret_env=entry.client_secret_env,
        scopes=tuple(entry.scopes),
        grant=Grant(entry.grant),
    )


def check_servers(
    servers: Collection[str], functions: Collection[str], problems: ConfigErrors
) -> None:
    """Check the names of servers. Models see them as the beginning of the tools' names."""
    for server in servers:
        if not _SERVER_NAME.fullmatch(server):
            problems.add(
                f"mcp.{server}",
                "a server's name has 1 to 32 of A-Z a-z 0-9, with single _ or - between; rename it",
            )
        for function in functions:
            if function.startswith(prefix_of(server)):
                problems.add(
                    f"mcp.{server}",
                    f"its tools begin with {prefix_of(server)!r}, and so does your tool {function!r};"
                    " rename one of them",
                )


def check_reference(
    key: str, reference: str, servers: Mapping[str, object], problems: ConfigErrors
) -> None:
    """Check a name in an agent's `tools` that is about a server: `github/*`."""
    server, _, tools = reference.partition(MCP_SEPARATOR)
    if server not in servers:
        problems.add(
            key,
            f"there is no MCP server {server!r}, {did_you_mean(server, servers)};"
            f" add [mcp.{server}] or remove it",
        )
    try:
        Glob(tools)
    except BadGlob as error:
        problems.add(key, f"{error}; correct it")
    if not tools:
        problems.add(key, f'names no tool; write "{server}/*" for all')
