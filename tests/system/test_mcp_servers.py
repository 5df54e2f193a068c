"""MCP servers that others have written, of both generations of the protocol."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.clock import yield_to_loop
from app.domain.errors import OutcomeUnknown
from app.domain.events.agent_events import AgentEvent
from app.domain.events.tool_call_events import ActivitySnapshot
from app.domain.json_values import Json, as_object
from app.domain.redaction import unredacted
from app.domain.structs import replace
from app.domain.tools.tool_calls import Effect, ResultStatus, ToolResult
from app.runtime.ports.call_waits import CarriedReply
from app.tools.mcp.server_spec import McpServerSpec
from app.tools.mcp.servers import McpServers, NoListings, opened_servers
from app.tools.mcp.tool import McpTool
from tests.support.calling import context
from tests.support.conditions import eventually
from tests.support.servers import serving

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


class Page(BaseHTTPRequestHandler):
    """A page of text, for the server that fetches pages."""

    def do_GET(self) -> None:
        is_page = self.path == "/page"
        body = b"A page of text." if is_page else b""
        self.send_response(200 if is_page else 404)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def page() -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}/page"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@dataclass(frozen=True)
class Official:
    """A server that others have written, and a call of it."""

    spec: McpServerSpec
    protocol: str
    tool: str
    arguments: Mapping[str, Any]
    answer: str


NAMES = ["time", "git", "fetch", "all", "files"]


@pytest.fixture
def officials(repository: Path, page: str) -> Mapping[str, Official]:
    file = repository / "a.txt"
    file.write_text("hello")
    found = [
        Official(
            server("time", PYTHON / "mcp-server-time"),
            "2026-07-28",
            "get_current_time",
            {"timezone": "UTC"},
            "UTC",
        ),
        Official(
            server("git", PYTHON / "mcp-server-git"),
            "2026-07-28",
            "git_status",
            {"repo_path": str(repository)},
            "No commits yet",
        ),
        Official(
            server("fetch", PYTHON / "mcp-server-fetch", "--allow-private-ips"),
            "2026-07-28",
            "fetch",
            {"url": page},
            "A page of text.",
        ),
        Official(
            server("all", NODE / "mcp-server-everything"),
            "2025-11-25",
            "echo",
            {"message": "hello"},
            "Echo: hello",
        ),
        Official(
            server("files", NODE / "mcp-server-filesystem", str(repository)),
            "2025-11-25",
            "read_text_file",
            {"path": str(file)},
            "hello",
        ),
    ]
    return {each.spec.name: each for each in found}


async def programs_of(spec: McpServerSpec) -> list[int]:
    """The processes of the server that this process has started."""
    return await asyncio.to_thread(children_of, os.getpid(), Path(str(spec.command)).name)


def children_of(parent: int, program: str) -> list[int]:
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in found if program in command_of(int(pid))]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


async def sent() -> None:
    """Let the ready tasks run until a new call is in the pipe of a server that reads nothing."""
    for _ in range(200):
        await yield_to_loop()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
async def test_each_server_is_listed_called_twenty_times_at_once_killed_in_mid_call_and_closed(
    officials: Mapping[str, Official], name: str
) -> None:
    one = officials[name]
    model_name = f"{name}__{one.tool}"
    async with opened(one.spec) as servers:
        tool = (await servers.tools_of([f"{name}/*"]))[model_name]
        assert isinstance(tool, McpTool)
        # Hints of some servers are missing; the calls here only read.
        tool = with_effect(tool, Effect.READ)
        report = servers.servers[name].report
        assert report.protocol == one.protocol
        assert set(report.left_out) <= {"simulate-research-query"}, "only tasks are left out"
        results = await asyncio.gather(
            *(tool.execute(dict(one.arguments), context()) for _ in range(20))
        )
        assert all(one.answer in each.text for each in results)

        [pid] = await programs_of(one.spec)
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(tool.execute(dict(one.arguments), context()))
            await sent()
            os.kill(pid, signal.SIGKILL)
        assert one.answer in calling.result().text, "a call that only reads is repeated"
        assert servers.servers[name].report.starts == 2
        [again] = await programs_of(one.spec)

        os.kill(again, signal.SIGSTOP)
        unsafe = with_effect(tool, Effect.UNSAFE)
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(outcome_of(unsafe, one.arguments))
            await sent()
            os.kill(again, signal.SIGKILL)
        assert "broke" in lost.result()
    assert await programs_of(one.spec) == []


def with_effect(tool: McpTool, effect: Effect) -> McpTool:
    return dataclasses.replace(tool, listed=dataclasses.replace(tool.listed, effect=effect))


async def outcome_of(tool: McpTool, arguments: Mapping[str, Any]) -> str:
    try:
        return (await tool.execute(dict(arguments), context())).text
    except OutcomeUnknown as error:
        return str(error)


async def test_effects_follow_from_the_hints_of_servers(officials: Mapping[str, Official]) -> None:
    async with opened(officials["git"].spec, officials["files"].spec) as servers:
        tools = await servers.tools_of(["git/*", "files/*"])
        effects = {
            name: tools[name].descriptor.effect
            for name in ("git__git_status", "git__git_commit", "files__read_text_file")
        }
        assert list(effects.values()) == [Effect.READ, Effect.UNSAFE, Effect.READ]
        outside = await call(servers, "files__read_text_file", path="/etc/passwd")
        assert outside.status is ResultStatus.ERROR


async def test_the_server_with_everything_sends_each_kind_of_content_and_progress() -> None:
    async with opened(server("all", NODE / "mcp-server-everything")) as servers:
        structured = await call(servers, "all__get-structured-content", location="New York")
        assert isinstance(structured.data, dict)
        assert structured.data["temperature"]
        image = await call(servers, "all__get-tiny-image")
        assert image.metadata is not None
        assert "image/png" in str(image.metadata["content"])
        links = await call(servers, "all__get-resource-links", count=2)
        assert "resource_link" in str(links.metadata)

        emitted: list[AgentEvent] = []
        tool = (await servers.tools_of(["all/*"]))["all__trigger-long-running-operation"]
        done = await tool.execute({"duration": 1, "steps": 2}, context(emitted))
        assert done.text.startswith("Long running operation completed")
        shown = [each.content for each in emitted if isinstance(each, ActivitySnapshot)]
        assert [each["loaded"] for each in map(as_object, shown) if each is not None]

        async with asyncio.TaskGroup() as group:
            endless = group.create_task(tool.execute({"duration": 600, "steps": 600}, context()))
            await sent()
            endless.cancel()
        assert endless.cancelled()
        assert (await call(servers, "all__echo", message="still")).text == "Echo: still"
        assert servers.servers["all"].report.starts == 1


@dataclass(frozen=True)
class Replies:
    """The replies that persons have given to the questions of a call."""

    given: list[CarriedReply]

    async def replies(self) -> list[CarriedReply]:
        return self.given


async def test_a_question_of_the_older_protocol_is_a_ticket_or_is_declined() -> None:
    async with opened(server("all", NODE / "mcp-server-everything")) as first:
        # The server adds this tool after the handshake, and says that its list has changed.
        tool = await eventually(lambda: asking_tool(first))
        assert tool.descriptor.effect is Effect.UNSAFE
        declined = await tool.execute({}, replace(context(), carried=Replies([])))
        assert "declined" in declined.text

        safe = with_effect(tool, Effect.IDEMPOTENT)
        waits = await safe.execute({}, replace(context(), carried=Replies([])))
        assert waits.suspension is not None
        assert waits.suspension.response_schema is not None
        assert "email" in waits.suspension.response_schema["properties"]
        assert waits.suspension.carry is not None
        carry = waits.suspension.carry
    async with opened(server("all", NODE / "mcp-server-everything")) as second:
        tool = await eventually(lambda: asking_tool(second))
        safe = with_effect(tool, Effect.IDEMPOTENT)
        answer: Json = {"name": "Ann Example", "check": True}
        reply = CarriedReply(carry=json.loads(json.dumps(carry)), action="accept", result=answer)
        answered = await safe.execute({}, replace(context(), carried=Replies([reply])))
        assert "Ann Example" in answered.text


async def asking_tool(servers: McpServers) -> McpTool | None:
    found = (await servers.tools_of(["all/*"])).get("all__trigger-elicitation-request")
    return found if isinstance(found, McpTool) else None


async def test_servers_end_when_holdfast_is_killed(
    officials: Mapping[str, Official], shared_database_url: str, tmp_path: Path
) -> None:
    tables = ["[models.script]\nprovider = 'scripted'\nscript = 'plain'\n"]
    for name, one in officials.items():
        spec = one.spec
        tables.append(
            f"[mcp.{name}]\ncommand = {json.dumps(spec.command)}\nargs = {json.dumps(spec.args)}\n"
            "startup_timeout = 60\n"
        )
    every = json.dumps([f"{name}/*" for name in officials])
    tables.append(
        f"[agents.both]\nmodel = 'script'\ntools = {every}\ntool_search = {{ mode = 'off' }}\n"
    )
    file = tmp_path / "agents.toml"
    file.write_text("\n".join(tables))
    calls = [
        f"CALL {name}__{one.tool} {json.dumps(dict(one.arguments))}"
        for name, one in officials.items()
    ]
    async with serving(shared_database_url, agents=file) as holdfast, holdfast.client() as client:
        started = await client.start("both", " ".join(calls))
        run = await client.ended(started["id"])
        messages = await client.get(f"/v1/threads/{run['thread_id']}/messages")
        texts = [each["content"][0]["text"] for each in messages["items"] if each["role"] == "tool"]
        assert [
            one.answer in text for one, text in zip(officials.values(), texts, strict=True)
        ] == ([True] * len(NAMES))
        programs = await asyncio.to_thread(children_of, holdfast.pid, "mcp-server")
        assert len(programs) == len(NAMES)
        holdfast.kill()
        await holdfast.gone()

        async def all_have_ended() -> bool:
            return not any("mcp-server" in command_of(pid) for pid in programs)

        await eventually(all_have_ended)
