"""MCP servers that others have written, of both generations of the protocol."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.domain.redaction import unredacted
from app.domain.tools.tool_calls import Effect, ResultStatus, ToolResult
from app.tools.mcp.server_spec import McpServerSpec
from app.tools.mcp.servers import McpServers, NoListings, opened_servers
from tests.support.calling import context

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

PYTHON = Path(sys.executable).parent
NODE = Path(__file__).parent / "clients" / "node_modules" / ".bin"


def server(name: str, program: Path, *args: str) -> McpServerSpec:
    return McpServerSpec(name=name, command=str(program), args=args, startup_timeout=60)


@asynccontextmanager
async def opened(*specs: McpServerSpec) -> AsyncIterator[McpServers]:
    by_name = {spec.name: spec for spec in specs}
    async with opened_servers(
        by_name, NoListings(), os.environ, unredacted, executes=True
    ) as servers:
        yield servers


async def call(servers: McpServers, name: str, **arguments: Any) -> ToolResult:
    tools = await servers.tools_of([f"{each}/*" for each in servers.servers])
    problem = tools[name].invalid_arguments(arguments)
    assert problem is None, problem
    return await tools[name].execute(dict(arguments), context())


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


async def test_three_servers_of_pypi_are_listed_and_called(repository: Path) -> None:
    async with opened(
        server("time", PYTHON / "mcp-server-time"),
        server("git", PYTHON / "mcp-server-git"),
        server("fetch", PYTHON / "mcp-server-fetch"),
    ) as servers:
        now = await call(servers, "time__get_current_time", timezone="UTC")
        assert "UTC" in now.text
        status = await call(servers, "git__git_status", repo_path=str(repository))
        assert "No commits yet" in status.text
        refused = await call(servers, "time__get_current_time", timezone="Mars/Base")
        assert refused.status is ResultStatus.ERROR
        reports = [each.report for each in servers.servers.values()]
        assert [each.protocol for each in reports] == ["2026-07-28"] * 3
        assert [each.left_out for each in reports] == [{}] * 3
        tools = servers.known_tools_of(["git/*"])
        assert tools["git__git_status"].descriptor.effect is Effect.READ
        assert tools["git__git_commit"].descriptor.effect is Effect.UNSAFE


async def test_a_server_of_npm_reads_and_writes_files(tmp_path: Path) -> None:
    async with opened(server("files", NODE / "mcp-server-filesystem", str(tmp_path))) as servers:
        file = str(tmp_path / "a.txt")
        written = await call(servers, "files__write_file", path=file, content="hello")
        assert written.status is ResultStatus.SUCCESS
        assert "hello" in (await call(servers, "files__read_text_file", path=file)).text
        outside = await call(servers, "files__read_text_file", path="/etc/passwd")
        assert outside.status is ResultStatus.ERROR
        assert servers.servers["files"].report.protocol == "2025-11-25"


async def test_the_server_with_everything_sends_each_kind_of_content() -> None:
    async with opened(server("all", NODE / "mcp-server-everything")) as servers:
        echoes = await asyncio.gather(
            *(call(servers, "all__echo", message=f"m{n}") for n in range(20))
        )
        assert [each.text for each in echoes] == [f"Echo: m{n}" for n in range(20)]
        image = await call(servers, "all__get-tiny-image")
        assert image.metadata is not None
        assert "image/png" in str(image.metadata["content"])


async def test_a_killed_server_is_started_again() -> None:
    async with opened(server("time", PYTHON / "mcp-server-time")) as servers:
        await call(servers, "time__get_current_time", timezone="UTC")
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
        programs = [
            int(pid)
            for pid in (await asyncio.to_thread(children.read_text)).split()
            if b"mcp-server-time"
            in await asyncio.to_thread(Path(f"/proc/{pid}/cmdline").read_bytes)
        ]
        for pid in programs:
            os.kill(pid, signal.SIGKILL)
        assert programs
        again = await call(servers, "time__get_current_time", timezone="UTC")
        assert again.status is ResultStatus.SUCCESS
        assert servers.servers["time"].report.starts == 2
