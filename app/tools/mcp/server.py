"""One server: its instances, its tools, and calls of them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from msgspec import Struct

from app import telemetry
from app.domain.errors import HoldfastError
from app.tools.mcp.client import (
    AuthorizationNeeded,
    InputRequired,
    ServerAnswer,
    ServerAway,
    ServerTools,
    SessionEnded,
    TaskHandle,
    ToolRequest,
)
from app.tools.mcp.instance import MAX_ERROR_CHARACTERS, InstanceState, McpInstance
from app.tools.mcp.listing import (
    ListedTool,
    Listing,
    StoredTool,
    ToolListings,
    listing_of,
    offered,
)
from app.tools.mcp.oauth.server_authorization import ServerAuthorization
from app.tools.mcp.oauth.token_store import HOLDFAST, Holder
from app.tools.mcp.server_spec import InstanceScope, McpServerSpec, Pin
from app.tools.mcp.tool_list import ToolList
from app.tools.result_limits import shortened

MAX_INSTANCES = 32
"""The most instances of a server with one for each thread or subject."""
MAX_LISTS = 256
"""The most subjects whose own list of tools is kept."""

log = structlog.get_logger(__name__)


class StateReport(Struct, frozen=True, kw_only=True):
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
    new_instance: Callable[["McpServer", Holder], McpInstance]
    executes: bool
    """Whether this process may start it. Others know only the stored tools."""
    authorization: ServerAuthorization | None = None
    stored: Mapping[str, StoredTool] = field(default_factory=dict)
    _stored_listing: Listing = Listing()
    _lists: OrderedDict[Holder, ToolList] = field(default_factory=OrderedDict)
    """By holder of the access token; one for all if the server needs no token of a person."""
    _list_error: str | None = None
    _instances: dict[Holder | str, McpInstance] = field(default_factory=dict)
    """By holder, or by thread."""

    # --- tools ----------------------------------------------------------------------------------

    @property
    def is_per_subject(self) -> bool:
        return self.authorization is not None and self.authorization.is_per_subject

    def own_holder(self, holder: Holder | None) -> Holder:
        """Whose token is used in a run of this holder."""
        return holder if holder is not None and self.is_per_subject else HOLDFAST

    def listing_for(self, holder: Holder) -> Listing:
        """The tools that are known without asking the server."""
        found = self._lists.get(holder)
        return self._stored_listing if found is None or found.listing is None else found.listing

    @property
    def listing(self) -> Listing:
        return self.listing_for(HOLDFAST)

    @property
    def known_tools(self) -> Mapping[str, ListedTool]:
        return offered(self.spec, self.listing, self.stored)

    async def tools(self, holder: Holder = HOLDFAST) -> Mapping[str, ListedTool]:
        """The tools that agents get now. Lists them if that wasn't done recently.

        If the server is away, the last known tools are returned. Their calls fail then, and say so. Raises
        AuthorizationNeeded if none are known, and a person has to give access first.
        """
        found = self._list_of(holder)
        missing: AuthorizationNeeded | None = None
        if self.executes and not found.is_fresh(self._starts(holder)):
            async with found.lock:
                if not found.is_fresh(self._starts(holder)):
                    missing = await self._list(holder, found)
        known = offered(self.spec, self.listing_for(holder), self.stored)
        if missing is not None and not known:
            raise missing
        return known

    async def is_as_accepted(self, tool: ListedTool, holder: Holder = HOLDFAST) -> bool:
        """Whether the server still says the same about a tool. Only required pins are checked before each call."""
        if self.spec.pin is not Pin.REQUIRE:
            return True
        async with self._instance(holder, holder).client():
            # It may have been started again since the list was read.
            known = (await self.tools(holder)).get(tool.name)
        return known is not None and known.digest == tool.digest

    def set_stored(self, stored: Sequence[StoredTool]) -> None:
        self.stored = {each.name: each for each in stored}
        own = self._lists.get(HOLDFAST)
        if own is None or own.listing is None:
            listed = [each.described for each in stored if each.is_listed]
            self._stored_listing = listing_of(self.spec, listed)

    def _list_of(self, holder: Holder) -> ToolList:
        found = self._lists.setdefault(holder, ToolList())
        self._lists.move_to_end(holder)
        if len(self._lists) > MAX_LISTS:
            self._lists.popitem(last=False)
        return found

    def _starts(self, holder: Holder) -> int | None:
        instance = self._instances.get(holder)
        return None if instance is None else instance.starts

    async def _list(self, holder: Holder, found: ToolList) -> AuthorizationNeeded | None:
        """List the tools. A failure is noted; one that a person can mend is returned."""
        found.begin()
        try:
            listed, starts = await self._read_list(holder)
        except AuthorizationNeeded as error:
            found.note_change()
            return error
        except (HoldfastError, TimeoutError) as error:
            found.note_failure()
            self._list_error = shortened(str(error), MAX_ERROR_CHARACTERS)
            log.warning("mcp_tools_not_listed", server=self.spec.name, error=str(error)[:200])
            return None
        listing = listing_of(self.spec, listed.tools, listed.fresh_for)
        for name, reason in listing.left_out.items():
            log.warning("mcp_tool_left_out", server=self.spec.name, tool=name, reason=reason)
        described = {name: tool.described for name, tool in listing.tools.items()}
        saved = await self.listings.save(
            self.spec.name, described, is_whole=not self.is_per_subject
        )
        self.set_stored(saved)
        found.note(listing, starts)
        self._list_error = None
        self._report_drift()
        return None

    async def _read_list(self, holder: Holder) -> tuple[ServerTools, int]:
        if self.authorization is not None:
            await self.authorization.source(holder).token()
        instance = self._instance(holder, holder)
        async with instance.client() as client:
            async with asyncio.timeout(self.spec.startup_timeout):
                return await client.list_tools(), instance.starts

    def _report_drift(self) -> None:
        if self.spec.pin is Pin.OFF:
            return
        for name, stored in self.stored.items():
            if stored.is_listed and stored.drift is not None:
                log.warning(
                    "mcp_tool_drifted", server=self.spec.name, tool=name, drift=stored.drift
                )

    def on_tools_changed(self) -> None:
        """Read the lists again before the next activation."""
        for each in self._lists.values():
            each.note_change()

    # --- calls ----------------------------------------------------------------------------------

    async def call(
        self, request: ToolRequest, thread: str, holder: Holder = HOLDFAST
    ) -> ServerAnswer | InputRequired | TaskHandle:
        """Call a tool. Raises what `McpClient.call` does, and ServerAway if the call did not begin."""
        if self.authorization is not None:
            # Without a token nothing is started.
            await self.authorization.source(holder).token()
        instance = self._instance(
            thread if self.spec.scope is InstanceScope.THREAD else holder, holder
        )
        outcome = "failed"
        with telemetry.mcp_call_seconds.labels(self.spec.name).time():
            try:
                answer = await _call(instance, request)
                outcome = _outcome(answer)
                return answer
            finally:
                telemetry.mcp_calls.labels(self.spec.name, outcome).inc()

    async def cancel_task(self, task: str, thread: str, holder: Holder = HOLDFAST) -> None:
        """Ask the server to end a task, if it is up."""
        instance = self._instances.get(
            thread if self.spec.scope is InstanceScope.THREAD else holder
        )
        if instance is not None and instance.state is InstanceState.UP:
            async with instance.client() as client:
                await client.cancel_task(task)

    def _instance(self, key: Holder | str, holder: Holder) -> McpInstance:
        instance = self._instances.get(key)
        if instance is None:
            if len(self._instances) >= MAX_INSTANCES:
                self._remove_one()
            instance = self._instances[key] = self.new_instance(self, holder)
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
        errors = (each.last_error for each in self.instances if each.last_error)
        return next(errors, self._list_error)

    def restart(self) -> None:
        """Close its connections, and forget failed starts. It is listed again before it is used."""
        for instance in self._instances.values():
            instance.restart()
        for each in self._lists.values():
            each.read_again()

    def stop(self) -> None:
        for instance in self._instances.values():
            instance.stop()


def _outcome(answer: ServerAnswer | InputRequired | TaskHandle) -> str:
    """The label of the metric."""
    match answer:
        case InputRequired():
            return "input_required"
        case TaskHandle():
            return "working"
        case ServerAnswer():
            return "error" if answer.is_error else "ok"


async def _call(
    instance: McpInstance, request: ToolRequest
) -> ServerAnswer | InputRequired | TaskHandle:
    """Call a tool, over a new client if the server has forgotten the old one's session."""
    try:
        async with instance.client() as client:
            return await client.call(request)
    except SessionEnded:
        async with instance.client() as client:
            return await client.call(request)
