"""An instance of an MCP server: when it is started, stopped and given up."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from app.domain.redaction import unredacted
from app.tools.mcp.client import (
    ClientEvents,
    InputRequired,
    McpClient,
    ServerAnswer,
    ServerAway,
    ServerTools,
    TaskHandle,
    ToolRequest,
)
from app.tools.mcp.instance import MAX_FAILURES, InstanceState, McpInstance
from app.tools.mcp.server_spec import McpServerSpec

pytestmark = pytest.mark.anyio


@dataclass
class OpenConnection:
    """A client that is open until it is lost."""

    lost: asyncio.Event = field(default_factory=asyncio.Event)
    protocol_version: str = "2026-07-28"
    server_version: str | None = None

    @property
    def is_closed(self) -> bool:
        return self.lost.is_set()

    async def wait_closed(self) -> None:
        await self.lost.wait()

    async def list_tools(self) -> ServerTools:
        raise NotImplementedError

    async def call(self, request: ToolRequest) -> ServerAnswer | InputRequired | TaskHandle:
        raise NotImplementedError

    async def cancel_task(self, task: str) -> None:
        raise NotImplementedError


@dataclass
class Program:
    """A server that notes which tasks open and close its connections."""

    fails: bool = False
    opened: list[OpenConnection] = field(default_factory=list)
    tasks: list[object] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def open(
        self, spec: McpServerSpec, environ: Mapping[str, str], events: ClientEvents
    ) -> AsyncIterator[McpClient]:
        if self.fails:
            raise ServerAway("it is broken")
        self.opened.append(OpenConnection())
        self.tasks.append(asyncio.current_task())
        yield self.opened[-1]
        self.tasks.append(asyncio.current_task())
        self.closed.set()


@asynccontextmanager
async def instance(program: Program, idle: float = 600.0) -> AsyncIterator[McpInstance]:
    events = ClientEvents(on_tools_changed=lambda: None, redact=unredacted)
    spec = McpServerSpec(name="shop", command="shop", idle=idle)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        one = McpInstance(spec, program.open, {}, events, tasks)
        yield one
        one.stop()


async def use(one: McpInstance) -> McpClient:
    async with one.client() as client:
        return client


async def test_users_at_the_same_time_share_one_connection() -> None:
    program = Program()
    async with instance(program) as one:
        assert one.starts == 0
        clients = await asyncio.gather(*(use(one) for _ in range(10)))
        assert one.state is InstanceState.UP
    assert all(client is program.opened[0] for client in clients)
    assert len(program.opened) == 1


async def test_the_task_that_opened_a_connection_closes_it() -> None:
    program = Program()
    async with instance(program) as one:
        await use(one)
    opening, closing = program.tasks
    assert opening is closing
    assert opening is not asyncio.current_task()


async def test_an_unused_connection_is_closed_after_the_idle_time_and_opened_again() -> None:
    program = Program()
    async with instance(program, idle=0.01) as one:
        async with one.client():
            assert one.is_used
        await program.closed.wait()
        assert one.state is InstanceState.IDLE
        await use(one)
    assert len(program.opened) == 2


async def test_a_lost_connection_is_replaced_at_once() -> None:
    program = Program()
    async with instance(program) as one:
        await use(one)
        program.opened[0].lost.set()
        assert await use(one) is program.opened[1]
        assert one.failures == 0


async def test_a_server_is_given_up_after_five_failed_starts_until_it_is_restarted() -> None:
    program = Program(fails=True)
    async with instance(program) as one:
        for number in range(1, MAX_FAILURES + 1):
            with pytest.raises(ServerAway, match="it is broken"):
                await use(one)
            assert one.failures == number
            with pytest.raises(ServerAway, match="tried again in"):
                await use(one)
            one._retry_at = 0.0
        assert one.state is InstanceState.GIVEN_UP
        assert one.starts == MAX_FAILURES
        program.fails = False
        one.restart()
        await use(one)
        assert (one.state, one.failures) == (InstanceState.UP, 0)
