"""One server: its instances, its tools, and calls of them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from app import telemetry
from app.domain.errors import HoldfastError
from app.tools.mcp.client import (
    InputRequired,
    ServerAnswer,
    ServerAway,
    SessionEnded,
    ToolRequest,
)
from app.tools.mcp.instance import InstanceState, McpInstance
from app.tools.mcp.listing import (
    ListedTool,
    Listing,
    StoredTool,
    ToolListings,
    listing_of,
    offered,
)
from app.tools.mcp.server_spec import InstanceScope, McpServerSpec, Pin

MAX_INSTANCES = 32
"""The most instances of a server with one for each thread."""
LISTING_SECONDS = 300.0
"""A list of tools is read again after this time, unless the server announces changes before."""
MIN_LISTING_SECONDS = 10.0
FAILED_LISTING_SECONDS = 5.0
"""Activations within this time after a failed list use the last known tools."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport:
    """The state of a server in one process."""

    state: str
    protocol: str | None
    version: str | None
    last_error: str | None
    failures: int
    starts: int
    instances: int
    left_out: Mapping[str, str]


@dataclass(slots=True, eq=False)
class McpServer:
    """A server of the agents file, in this process."""

    spec: McpServerSpec
    listings: ToolListings
    new_instance: Callable[["McpServer"], McpInstance]
    executes: bool
    """Whether this process may start it. Others know only the stored tools."""
    stored: Mapping[str, StoredTool] = field(default_factory=dict)
    _stored_listing: Listing = Listing()
    _listing: Listing | None = None
    """None until the server was listed by this process."""
    _listed_at: float = 0.0
    _listed_start: int = 0
    """The start of the server that the list is from. After another start it may have other tools."""
    _list_again_at: float = 0.0
    _has_changed: bool = False
    _listing_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _instances: dict[str | None, McpInstance] = field(default_factory=dict)

    # --- tools ----------------------------------------------------------------------------------

    @property
    def listing(self) -> Listing:
        """The tools that are known without asking the server."""
        return self._stored_listing if self._listing is None else self._listing

    @property
    def known_tools(self) -> Mapping[str, ListedTool]:
        return offered(self.spec, self.listing, self.stored)

    async def tools(self) -> Mapping[str, ListedTool]:
        """The tools that agents get now. Lists them if that wasn't done recently.

        If the server is away, the last known tools are returned. Their calls fail then, and say so.
        """
        if self.executes and not self._is_fresh():
            async with self._listing_lock:
                if not self._is_fresh():
                    await self._list()
        return self.known_tools

    async def is_as_accepted(self, tool: ListedTool) -> bool:
        """Whether the server still says the same about a tool. Only required pins are checked before each call."""
        if self.spec.pin is not Pin.REQUIRE:
            return True
        async with self._instance(None).client():
            # It may have been started again since the list was read.
            known = (await self.tools()).get(tool.name)
        return known is not None and known.digest == tool.digest

    def set_stored(self, stored: Sequence[StoredTool]) -> None:
        self.stored = {each.name: each for each in stored}
        if self._listing is None:
            listed = [each.described for each in stored if each.is_listed]
            self._stored_listing = listing_of(self.spec, listed)

    def _is_fresh(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now < self._list_again_at:
            return True
        if self._listing is None or self._has_changed:
            return False
        if (instance := self._instances.get(None)) and instance.starts != self._listed_start:
            return False
        wanted = self._listing.fresh_for or LISTING_SECONDS
        return now - self._listed_at < max(wanted, MIN_LISTING_SECONDS)

    async def _list(self) -> None:
        self._has_changed = False
        instance = self._instance(None)
        try:
            async with instance.client() as client:
                async with asyncio.timeout(self.spec.startup_timeout):
                    found = await client.list_tools()
                started = instance.starts
        except (HoldfastError, TimeoutError) as error:
            self._has_changed = True
            self._list_again_at = asyncio.get_running_loop().time() + FAILED_LISTING_SECONDS
            log.warning("mcp_tools_not_listed", server=self.spec.name, error=str(error)[:200])
            return
        listing = listing_of(self.spec, found.tools, found.fresh_for)
        for name, reason in listing.left_out.items():
            log.warning("mcp_tool_left_out", server=self.spec.name, tool=name, reason=reason)
        described = {name: tool.described for name, tool in listing.tools.items()}
        self.set_stored(await self.listings.save(self.spec.name, described))
        self._listing, self._listed_start = listing, started
        self._listed_at = asyncio.get_running_loop().time()
        self._report_drift()

    def _report_drift(self) -> None:
        if self.spec.pin is Pin.OFF:
            return
        for name, stored in self.stored.items():
            if stored.is_listed and stored.drift is not None:
                log.warning(
                    "mcp_tool_drifted", server=self.spec.name, tool=name, drift=stored.drift
                )

    def on_tools_changed(self) -> None:
        """Read the list again before the next activation."""
        self._has_changed = True

    # --- calls ----------------------------------------------------------------------------------

    async def call(self, request: ToolRequest, thread: str) -> ServerAnswer | InputRequired:
        """Call a tool. Raises what `McpClient.call` does, and ServerAway if the call did not begin."""
        instance = self._instance(thread if self.spec.scope is InstanceScope.THREAD else None)
        outcome = "failed"
        with telemetry.mcp_call_seconds.labels(self.spec.name).time():
            try:
                answer = await _call(instance, request)
                if isinstance(answer, InputRequired):
                    outcome = "input_required"
                else:
                    outcome = "error" if answer.is_error else "ok"
                return answer
            finally:
                telemetry.mcp_calls.labels(self.spec.name, outcome).inc()

    def _instance(self, key: str | None) -> McpInstance:
        instance = self._instances.get(key)
        if instance is None:
            if len(self._instances) >= MAX_INSTANCES:
                self._remove_one()
            instance = self._instances[key] = self.new_instance(self)
        return instance

    def _remove_one(self) -> None:
        unused = [(each.used_at, key) for key, each in self._instances.items() if not each.is_used]
        if not unused:
            raise ServerAway(f"all its {MAX_INSTANCES} instances are in use")
        _, key = min(unused, key=lambda each: each[0])
        self._instances.pop(key).stop()

    # --- state ----------------------------------------------------------------------------------

    @property
    def instances(self) -> Sequence[McpInstance]:
        return list(self._instances.values())

    @property
    def state(self) -> InstanceState:
        """The state of the instances together: one that is up counts most."""
        states = {each.state for each in self._instances.values()}
        for state in (InstanceState.UP, InstanceState.STARTING, InstanceState.GIVEN_UP):
            if state in states:
                return state
        return InstanceState.FAILING if InstanceState.FAILING in states else InstanceState.IDLE

    @property
    def report(self) -> "StateReport":
        """What other processes may know of the server's state here."""
        newest = max(self.instances, key=lambda each: each.starts, default=None)
        return StateReport(
            state=self.state.value,
            protocol=None if newest is None else newest.protocol_version,
            version=None if newest is None else newest.server_version,
            last_error=self.last_error,
            failures=max((each.failures for each in self.instances), default=0),
            starts=sum(each.starts for each in self.instances),
            instances=sum(each.state is InstanceState.UP for each in self.instances),
            left_out=dict(self.listing.left_out),
        )

    @property
    def last_error(self) -> str | None:
        return next((each.last_error for each in self.instances if each.last_error), None)

    def restart(self) -> None:
        """Close its connections, and forget failed starts. It is listed again before it is used."""
        for instance in self._instances.values():
            instance.restart()
        self._has_changed, self._list_again_at = True, 0.0

    def stop(self) -> None:
        for instance in self._instances.values():
            instance.stop()


async def _call(instance: McpInstance, request: ToolRequest) -> ServerAnswer | InputRequired:
    """Call a tool, over a new client if the server has forgotten the old one's session."""
    try:
        async with instance.client() as client:
            return await client.call(request)
    except SessionEnded:
        async with instance.client() as client:
            return await client.call(request)
