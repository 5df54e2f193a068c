"""The authorization of one MCP server in this process: its authorization server, and a token source per holder."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from msgspec import Struct

from app.clock import Clock
from app.domain.runs.run_info import RunInfo
from app.tools.mcp.client import ServerAway
from app.tools.mcp.oauth.authorization import (
    Attempt,
    address_for,
    attempt_of,
    new_attempt,
    redeemed,
)
from app.tools.mcp.oauth.authorization_server import AuthorizationServer
from app.tools.mcp.oauth.token_source import TokenSource
from app.tools.mcp.oauth.token_store import HOLDFAST, Holder, Seal, TokenKey, TokenStore
from app.tools.mcp.server_spec import Grant, McpServerSpec, OAuthSpec

MAX_SOURCES = 1_000
"""The most holders whose tokens a process keeps in memory."""


class TokenServices(Struct, frozen=True, kw_only=True):
    """What all servers with OAuth share."""

    store: TokenStore
    seal: Seal | None
    """None in commands in which no person gives access."""
    clock: Clock
    environ: Mapping[str, str]
    public_url: str = ""
    """The address of this server for browsers; empty if it isn't known."""


@dataclass(slots=True)
class ServerAuthorization:
    spec: McpServerSpec
    oauth: OAuthSpec
    services: TokenServices
    _server: AuthorizationServer | None = None
    _sources: OrderedDict[Holder, TokenSource] = field(default_factory=OrderedDict)

    @property
    def is_per_subject(self) -> bool:
        return self.oauth.grant is Grant.AUTHORIZATION_CODE

    @property
    def link(self) -> str:
        """Where a person begins to give access."""
        return f"{self.services.public_url}/v1/mcp-servers/{quote(self.spec.name)}/authorize"

    def holder_for(self, run: RunInfo | None) -> Holder:
        """Whose token a run uses: that of the subject who started it, or Holdfast's own."""
        if run is None or not self.is_per_subject:
            return HOLDFAST
        return Holder(run.tenant, run.started_by)

    def source(self, holder: Holder) -> TokenSource:
        found = self._sources.get(holder)
        if found is None:
            found = self._sources[holder] = TokenSource(
                self._key(holder),
                self._resource,
                self._authorization_server(),
                self.services.store,
                self.services.clock,
            )
            if len(self._sources) > MAX_SOURCES:
                self._sources.popitem(last=False)
        self._sources.move_to_end(holder)
        return found

    async def begin(
        self, holder: Holder, *, in_browser: bool, base_url: str
    ) -> tuple[str, Attempt]:
        """The address where the holder gives access, and the attempt. Raises AuthorizationServerFailed."""
        redirect_uri = f"{self.services.public_url or base_url}{self._callback}"
        attempt = new_attempt(self.spec.name, holder, redirect_uri, in_browser=in_browser)
        server = self._authorization_server()
        return await address_for(attempt, self._seal, server, self._resource), attempt

    async def finish(
        self, state: str, code: str, issuer: str | None, browser: str | None
    ) -> Holder:
        """Store the tokens for a code. Raises AuthorizationFailed or AuthorizationServerFailed."""
        attempt = self.attempt(state, browser)
        server = self._authorization_server()
        tokens = await redeemed(attempt, code, issuer, server, self._resource)
        await self.services.store.save(self._key(attempt.holder), tokens)
        self.source(attempt.holder).forget()
        return attempt.holder

    def attempt(self, state: str, browser: str | None) -> Attempt:
        """The attempt of a `state`. Raises AuthorizationFailed."""
        return attempt_of(self._seal, state, self.spec.name, browser)

    def forget(self, holder: Holder) -> None:
        """Read the holder's stored tokens again. Other processes do so within ten seconds."""
        self.source(holder).forget()

    @property
    def _callback(self) -> str:
        return f"/v1/mcp-servers/{quote(self.spec.name)}/callback"

    @property
    def _seal(self) -> Seal:
        assert self.services.seal is not None
        return self.services.seal

    @property
    def _resource(self) -> str:
        assert self.spec.url is not None
        return self.spec.url

    def _key(self, holder: Holder) -> TokenKey:
        return TokenKey(holder=holder, server=self.spec.name, issuer=self.oauth.issuer)

    def _authorization_server(self) -> AuthorizationServer:
        if self._server is None:
            secret = None
            if (variable := self.oauth.client_secret_env) is not None:
                secret = self.services.environ.get(variable)
                if not secret:
                    raise ServerAway(f"the variable {variable} of client_secret_env isn't set")
            self._server = AuthorizationServer(self.oauth, secret, self.services.clock)
        return self._server
