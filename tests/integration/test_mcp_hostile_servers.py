"""MCP servers that misbehave harm only their own calls."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import OutcomeUnknown
from app.domain.redaction import unredacted
from app.domain.tools.tool_calls import Effect, ResultStatus, ToolResult
from app.runtime.ports.tools import NeedsApproval
from app.tools.mcp.listing import Listing
from app.tools.mcp.server_spec import Effects, McpServerSpec
from app.tools.mcp.servers import McpServers, NoListings, opened_servers
from tests.support.calling import context
from tests.support.mcp.hostile_http import hostile_server
from tests.support.memory_growth import peak_growth

pytestmark = pytest.mark.anyio

HOSTILE = Path(__file__).parents[1] / "support" / "mcp" / "hostile.py"


@asynccontextmanager
async def servers(
    *ways: str, http: Mapping[str, str] | None = None, **more: Any
) -> AsyncIterator[McpServers]:
    """Servers with these settings, and a good one, which may take long on a busy machine."""
    patient = {"startup_timeout": 30.0, "timeout": 20.0}
    limits = {**patient, **more}
    specs = {
        way: McpServerSpec(name=way, command=sys.executable, args=(str(HOSTILE), way), **own)
        for way, own in (*((way, limits) for way in ways), ("good", patient))
    }
    for way, address in (http or {}).items():
        specs[way] = McpServerSpec(name=way, url=address, effects=Effects.UNSAFE, **limits)
    async with opened_servers(specs, NoListings(), os.environ, unredacted, executes=True) as opened:
        yield opened


async def called(opened: McpServers, server: str) -> ToolResult:
    tools = await opened.tools_of([f"{server}/work"])
    return await tools[f"{server}__work"].execute({"text": "x"}, context())


async def listed(way: str) -> Listing:
    async with servers(way) as opened:
        await opened.tools_of([f"{way}/*"])
        return opened.servers[way].listing


@pytest.mark.parametrize("way", ["endless-line", "garbage"])
async def test_output_without_end_breaks_only_that_servers_connection(way: str) -> None:
    async with servers(way) as opened:
        with pytest.raises(Exception, match="broke"):
            await called(opened, way)
        assert (await called(opened, "good")).text == "done"


@pytest.mark.parametrize("way", ["endless-line", "endless-body", "endless-event"])
async def test_output_without_end_takes_little_memory(way: str) -> None:
    async with AsyncExitStack() as stack:
        if way == "endless-line":
            opened = await stack.enter_async_context(servers(way))
        else:
            address = await stack.enter_async_context(hostile_server(way))
            opened = await stack.enter_async_context(servers(http={way: address}))
        assert (await called(opened, "good")).text == "done"
        async with peak_growth() as growth:
            assert await _outcome(opened, way) != "done"
        assert growth.bytes < 64 << 20
        assert (await called(opened, "good")).text == "done"


@pytest.mark.parametrize("way", ["slow-loris", "slow-events", "silent", "elsewhere"])
async def test_a_bad_answer_over_http_harms_only_its_own_call(way: str) -> None:
    async with (
        hostile_server(way) as address,
        servers(http={way: address}, timeout=1.0) as opened,
    ):
        async with asyncio.TaskGroup() as group:
            bad = group.create_task(_outcome(opened, way))
            assert (await called(opened, "good")).text == "done"
        assert bad.result() != "done"
        assert (await called(opened, "good")).text == "done"


async def test_a_call_whose_headers_are_out_of_date_is_sent_once_more_after_a_new_list() -> None:
    async with (
        hostile_server("headers-once") as address,
        servers(http={"headers-once": address}) as opened,
    ):
        tool = (await opened.tools_of(["headers-once/work"]))["headers-once__work"]
        result = await tool.execute({"text": address}, context())
        assert result.text == "done"


async def _outcome(opened: McpServers, server: str) -> str:
    try:
        return (await called(opened, server)).text
    except OutcomeUnknown as error:
        return str(error)


async def test_an_instruction_in_a_description_changes_no_rule_and_no_approval() -> None:
    async with servers("injecting", approval=("*",), effects=Effects.UNSAFE) as opened:
        tool = (await opened.tools_of(["injecting/work"]))["injecting__work"]
        assert tool.descriptor.effect is Effect.UNSAFE
        assert isinstance(tool, NeedsApproval)
        assert tool.needs_approval
        assert await tool.approval_question({}, context()) is not None


async def test_a_flood_of_messages_is_read_slowly_until_the_call_times_out() -> None:
    async with servers("flood", timeout=1.0) as opened:
        assert (await called(opened, "good")).text == "done"
        result = await called(opened, "flood")
        assert result.text == "Timed out after 1 s; whether it took effect is unknown"
        assert (await called(opened, "good")).text == "done"


async def test_a_call_that_gets_no_answer_times_out() -> None:
    async with servers("slow", timeout=0.5) as opened:
        result = await called(opened, "slow")
        assert result.status is ResultStatus.ERROR
        assert not result.may_be_retried


async def test_an_answer_that_breaks_the_protocol_is_an_error() -> None:
    async with servers("wrong") as opened:
        assert "breaks the protocol" in (await called(opened, "wrong")).text


async def test_a_server_that_never_answers_is_away_and_its_agents_work_without_it() -> None:
    async with servers("silent", startup_timeout=1.0) as opened:
        good = opened.servers["good"]
        tools = await opened.tools_of(["silent/*"])
        assert tools == {}
        assert opened.servers["silent"].last_error == "it did not start within 1 s"
        assert good.last_error is None


async def test_a_server_that_ignores_its_end_is_killed() -> None:
    async with servers("deaf") as opened:
        assert (await called(opened, "deaf")).text == "done"


async def test_tools_with_huge_descriptions_are_left_out_with_the_reason() -> None:
    listing = await listed("huge-schemas")
    assert list(listing.tools) == ["usable"]
    assert "more than 64000 bytes" in listing.left_out["wide"]
    assert "nested deeper" in listing.left_out["deep"]
    assert "more than 64000 bytes" in listing.left_out["long"]


async def test_at_most_128_tools_of_a_server_are_offered() -> None:
    listing = await listed("many")
    assert len(listing.tools) == 128
    assert len(listing.left_out) == 1_000 - 128


async def test_characters_that_people_do_not_see_are_removed_from_descriptions() -> None:
    listing = await listed("injecting")
    assert listing.tools["work"].description == "Works."


async def test_an_activation_keeps_the_tools_that_it_began_with() -> None:
    async with servers("changing") as opened:
        before = await opened.tools_of(["changing/*"])
        opened.servers["changing"].on_tools_changed()
        after = await opened.tools_of(["changing/*"])
        assert before["changing__work"].descriptor.description == "Version 1."
        assert after["changing__work"].descriptor.description == "Version 2."
        assert (
            before["changing__work"].descriptor.digest != after["changing__work"].descriptor.digest
        )
