"""Remote agents for the contract tests of backends: all obey the same commands over different protocols."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from app.agents.catalog import Catalog
from app.backends.a2a.factory import A2AFactory
from app.backends.registry import Backends
from app.backends.remote_holdfast.backend import HoldfastFactory
from app.domain.agents.endpoints import Endpoint
from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId
from app.domain.json_values import Json
from app.llm.catalog import ModelCatalog
from app.llm.scripted.model import Script, in_order
from tests.support.commanded_model import ASK, CommandedModel, ask_person
from tests.support.databases import Databases
from tests.support.echo_backend import Echo
from tests.support.replicas import OneModel, an_agent
from tests.support.servers import Server, serving
from tests.support.streams import TIMEOUT_SECONDS

ROOT = Path(__file__).parents[2]
_SERVES = re.compile(rb"serves on (\S+)")


class Remote(Protocol):
    """A remote agent, and what a test can observe of it."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def backends(self) -> Backends: ...

    @property
    def script(self) -> Script | ModelCatalog: ...

    async def hanging(self) -> None:
        """Wait until a turn hangs."""

    async def release(self) -> None:
        """Let the hanging turn continue."""

    async def turns(self) -> int:
        """The number of turns it got; asserts that no turn came twice."""

    async def aborts(self) -> int: ...


def catalog_of(endpoint: Endpoint) -> Catalog:
    """A catalog with one agent at this endpoint."""
    spec = AgentSpec(id=AgentId("remote"), endpoint=endpoint)
    return Catalog(agents={spec.id: spec}, models={}, tools={})


class ModelOfAnotherServer:
    """Its model is not scripted here."""

    @property
    def script(self) -> Script:
        return in_order()


@dataclass
class ModelInThisProcess:
    """Its model is in this process, so a test sees it hang and can release it."""

    model: CommandedModel

    async def hanging(self) -> None:
        await asyncio.wait_for(self.model.hanging.wait(), TIMEOUT_SECONDS)

    async def release(self) -> None:
        self.model.released.set()


# --- in this process ------------------------------------------------------------------------------


@dataclass
class EchoRemote(ModelOfAnotherServer):
    echo: Echo

    @property
    def catalog(self) -> Catalog:
        return self.echo.catalog

    @property
    def backends(self) -> Backends:
        return self.echo.backends

    async def hanging(self) -> None:
        await asyncio.wait_for(self.echo.hanging.wait(), TIMEOUT_SECONDS)

    async def release(self) -> None:
        self.echo.released.set()

    async def turns(self) -> int:
        return len({turn.key for turn in self.echo.turns})

    async def aborts(self) -> int:
        return len(self.echo.aborts)


# --- by A2A ---------------------------------------------------------------------------------------


class A2AServer:
    """The real server in its own process; it can be killed and restarted on its port."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self.base = ""

    async def start(self) -> None:
        port = self.base.rpartition(":")[2] or "0"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.a2a_server",
            f"--port={port}",
            *self._arguments,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (found := _SERVES.search(await self._process.stdout.readline())) is None:
                assert self._process.returncode is None, "the A2A server didn't start"
        self.base = found[1].decode()

    async def begin_anew(self) -> None:
        """Reset it for the next test."""
        if self._process is None or self._process.returncode is not None:
            await self.start()
        else:
            await self.reset()

    async def kill(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze its process: connections stay open without an answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def seen(self, *, hanging: bool = False) -> dict[str, list[str]]:
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
            query = {"hanging": "1"} if hanging else {}
            answer = await client.get(f"{self.base}/seen", params=query)
        body: dict[str, list[str]] = answer.json()
        return body

    async def release(self) -> None:
        await self._post("release")

    async def reset(self) -> None:
        """Forget everything observed so far."""
        await self._post("reset")

    async def _post(self, what: str) -> None:
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
            await client.post(f"{self.base}/{what}")


@asynccontextmanager
async def a2a_server(*arguments: str) -> AsyncIterator[A2AServer]:
    server = A2AServer(*arguments)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@dataclass
class A2ARemote(ModelOfAnotherServer):
    server: A2AServer
    options: Mapping[str, Json]
    auth_env: str | None = None
    timeout: float = 30.0
    environment: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self._backends = Backends({"a2a": A2AFactory()}, self.environment or {})

    @property
    def catalog(self) -> Catalog:
        return catalog_of(
            Endpoint(
                backend="a2a",
                url=self.server.base,
                options={"poll_interval": 0.2, **self.options},
                auth_env=self.auth_env,
                timeout=self.timeout,
            )
        )

    @property
    def backends(self) -> Backends:
        return self._backends

    async def hanging(self) -> None:
        await self.server.seen(hanging=True)

    async def release(self) -> None:
        await self.server.release()

    async def turns(self) -> int:
        asked = (await self.server.seen())["turns"]
        assert len(asked) == len(set(asked)), "a turn started twice"
        return len(asked)

    async def aborts(self) -> int:
        return len((await self.server.seen())["cancels"])


# --- another Holdfast -----------------------------------------------------------------------------

_AGENTS = """
[models.obedience]
provider = "openai"
model = "obedience"
base_url = "http://127.0.0.1:PORT/v1"
api_key = "unused"

[tools]
modules = ["asking"]

[agents.far]
model = "obedience"
tools = ["ask_person"]

[agents.lead]
model = "obedience"
tools = ["ask_person"]
delegates = ["far"]

[agents.boss]
model = "obedience"
delegates = ["lead", "far"]
"""


@dataclass
class HoldfastRemote(ModelInThisProcess, ModelOfAnotherServer):
    server: Server
    before: Collection[str] = ()
    """Runs of earlier tests."""

    def __post_init__(self) -> None:
        self._backends = Backends({"holdfast": HoldfastFactory()}, {})

    @property
    def catalog(self) -> Catalog:
        return self.catalog_with("far")

    def catalog_with(self, agent: str) -> Catalog:
        return catalog_of(Endpoint(backend="holdfast", url=self.server.base, target=agent))

    @property
    def backends(self) -> Backends:
        return self._backends

    async def turns(self) -> int:
        return len(await self.runs())

    async def aborts(self) -> int:
        return sum(run["outcome"] == "cancelled" for run in await self.runs())

    async def begin_anew(self) -> None:
        """Reset it for the next test: earlier runs don't count."""
        self.model.forget()
        self.before = {*self.before, *(run["id"] for run in await self.runs())}

    async def runs(self) -> list[dict[str, Any]]:
        async with self.server.client() as client:
            page = await client.get("/v1/runs")
        return [run for run in page["items"] if run["id"] not in self.before]


@asynccontextmanager
async def _another_holdfast(databases: Databases, folder: Path) -> AsyncIterator[HoldfastRemote]:
    """A Holdfast server on its own database."""
    model = CommandedModel()
    (folder / "asking.py").write_text(
        f"from tests.support.commanded_model import {ASK}\n\n{ASK} = {ASK}\n"
    )
    file = folder / "agents.toml"
    async with model.provided() as port, databases.fresh() as url:
        file.write_text(_AGENTS.replace("PORT", str(port)))
        async with serving(url, agents=file) as server:
            there = HoldfastRemote(model, server)
            yield there
            await there.backends.aclose()


# --- our own loop ---------------------------------------------------------------------------------


@dataclass
class LocalRemote(ModelInThisProcess):
    """A local agent that obeys the same commands."""

    @property
    def catalog(self) -> Catalog:
        return an_agent(ask_person)

    @property
    def backends(self) -> Backends:
        return Backends({}, {})

    @property
    def script(self) -> ModelCatalog:
        return OneModel(self.model)

    async def turns(self) -> int:
        raise NotImplementedError("our own loop asks its model again")

    async def aborts(self) -> int:
        return self.model.broken_off


# --- shared by tests ------------------------------------------------------------------------------


@dataclass
class Remotes:
    """Servers that several tests share in turn; each test resets them."""

    databases: Databases
    folder: Path
    stack: AsyncExitStack
    _a2a: dict[tuple[str, ...], A2AServer] = field(default_factory=dict)
    _holdfast: HoldfastRemote | None = None

    async def a2a(self, *arguments: str) -> A2AServer:
        server = self._a2a.get(arguments)
        if server is None:
            server = self._a2a[arguments] = A2AServer(*arguments)
            self.stack.push_async_callback(server.kill)
        await server.begin_anew()
        return server

    async def holdfast(self) -> HoldfastRemote:
        if self._holdfast is None:
            opened = _another_holdfast(self.databases, self.folder)
            self._holdfast = await self.stack.enter_async_context(opened)
        await self._holdfast.begin_anew()
        return self._holdfast


@asynccontextmanager
async def shared_remotes(databases: Databases, folder: Path) -> AsyncIterator[Remotes]:
    async with AsyncExitStack() as stack:
        yield Remotes(databases, folder, stack)


@asynccontextmanager
async def remote(kind: str, shared: Remotes) -> AsyncIterator[Remote]:
    """The remote agent for this protocol."""
    match kind:
        case "local":
            yield LocalRemote(CommandedModel())
        case "holdfast":
            yield await shared.holdfast()
        case "echo":
            yield EchoRemote(Echo())
        case "a2a":
            there = A2ARemote(await shared.a2a(), {})
            yield there
            await there.backends.aclose()
        case "a2a, polled":
            there = A2ARemote(await shared.a2a("--no-streaming"), {"streaming": False})
            yield there
            await there.backends.aclose()
        case _:
            raise ValueError(kind)
