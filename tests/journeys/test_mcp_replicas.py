"""MCP servers with an API process and several workers, over HTTP, and with one instance for each thread."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.clock import new_id
from tests.journeys.test_mcp_servers import programs_of, prompt, result_of, waiting, written
from tests.support.conditions import eventually
from tests.support.mcp.agents_files import with_shop
from tests.support.mcp.http_shop import HttpShop, Link, http_shop, linked
from tests.support.servers import Server, WorkerProcess, serving, working
from tests.support.streams import Client

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def payments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shop") / "payments"


@pytest.fixture(scope="module")
async def shop(payments: Path) -> AsyncIterator[HttpShop]:
    """The shop over HTTP."""
    async with http_shop(SHOP_FILE=str(payments)) as running:
        yield running


@pytest.fixture(scope="module")
async def link(shop: HttpShop) -> AsyncIterator[Link]:
    async with linked(shop.port) as running:
        yield running


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory, payments: Path, link: Link) -> Path:
    address = f"http://127.0.0.1:{link.port}/mcp"
    servers: dict[str, dict[str, Any]] = {
        "shop": {},
        "threaded": {"scope": "thread"},
        "big": {"approval": ["item_*"], "env": {"SHOP_ITEMS": "60"}},
        "net": {"url": address, "effects": "hints"},
    }
    return with_shop(tmp_path_factory.mktemp("agents"), payments, servers)


@pytest.fixture(scope="module")
async def api(shared_database_url: str, agents: Path) -> AsyncIterator[Server]:
    async with serving(shared_database_url, agents=agents, role="api") as running:
        yield running


@pytest.fixture(scope="module")
async def worker(shared_database_url: str, agents: Path) -> AsyncIterator[WorkerProcess]:
    async with working(shared_database_url, agents=agents) as running:
        yield running


@pytest.fixture
async def client(api: Server) -> AsyncIterator[Client]:
    async with api.client() as one:
        yield one


async def text_of_call(client: Client, tool: str, server: str, **more: Any) -> str:
    started = await client.start(server, prompt(tool, server=server), **more)
    result = await result_of(client, await client.ended(started["id"]))
    return str(result["content"][0]["text"])


async def is_noted(payments: Path, line: str, times: int = 1) -> None:
    async def found() -> bool:
        return written(payments).count(line) >= times

    await eventually(found)


async def test_an_api_process_knows_the_tools_that_a_worker_has_listed(
    client: Client, api: Server, worker: WorkerProcess
) -> None:
    assert await text_of_call(client, "visits", "shop") == "1"
    assert programs_of(api) == []

    async def is_reported() -> dict[str, Any] | None:
        found = await client.get("/v1/mcp-servers/shop")
        return found if found["state"] == "up" else None

    found = await eventually(is_reported)
    assert (found["protocol"], len(found["processes"])) == ("2026-07-28", 1)
    assert "shop__visits" in [each["name"] for each in (await client.get("/v1/tools"))["items"]]

    await client.post("/v1/mcp-servers/shop/restart", status=202)

    async def is_restarted() -> bool:
        return await text_of_call(client, "visits", "shop") == "1"

    await eventually(is_restarted)


async def test_a_tool_of_a_server_with_many_is_searched_for_approved_and_called(
    client: Client, worker: WorkerProcess
) -> None:
    search = 'CALL search_tools {"query": "show item 37", "limit": 1}'
    started = await client.start("big", f"{search} CALL big__item_37 {{}}")
    ticket = await waiting(client, started["id"])
    assert (ticket["kind"], ticket["tool_name"]) == ("approval", "big__item_37")
    shown = await client.get(f"/v1/runs/{started['id']}", include="state")
    assert "big__item_37" in str(shown["state"])
    await client.decide(ticket["run"], "approve")
    run = await client.ended(started["id"])
    assert (await result_of(client, run))["content"][0]["text"] == "item 37"
    log = await client.log(f"/v1/runs/{run['id']}")
    [searched, *_] = [each for each in log if each["event_type"] == "tool_call_done"]
    assert "big__item_37" in str(searched["result"])


async def test_each_thread_has_its_own_instance(client: Client, worker: WorkerProcess) -> None:
    first, second = new_id(), new_id()
    counts = [
        await text_of_call(client, "visits", "threaded", thread_id=thread)
        for thread in (first, first, second, first)
    ]
    assert counts == ["1", "2", "1", "3"]


async def test_an_unsafe_call_over_http_that_breaks_off_asks_what_it_did(
    client: Client, worker: WorkerProcess, link: Link, payments: Path
) -> None:
    started = await client.start("net", prompt("ship", server="net", seconds=600))
    await is_noted(payments, "shipped")
    link.cut()
    ticket = await waiting(client, started["id"])
    assert ticket["kind"] == "outcome_unknown"
    assert "connection to the MCP server 'net' broke" in ticket["message"]
    await client.decide(ticket["run"], "respond", result="it was shipped")
    await client.ended(started["id"])
    assert written(payments).count("shipped") == 1


async def test_a_safe_call_over_http_that_breaks_off_is_repeated(
    client: Client, worker: WorkerProcess, link: Link, payments: Path
) -> None:
    before = written(payments).count("waiting")
    started = await client.start("net", prompt("wait", server="net", seconds=2))
    await is_noted(payments, "waiting", before + 1)
    link.cut()
    result = await result_of(client, await client.ended(started["id"]))
    assert result["content"][0]["text"] == "waited"
    assert written(payments).count("waiting") == before + 2


async def test_a_server_that_was_killed_over_http_is_used_again_once_it_is_back(
    client: Client, worker: WorkerProcess, shop: HttpShop, payments: Path
) -> None:
    started = await client.start("net", prompt("ship", server="net", seconds=600))
    await is_noted(payments, "shipped", written(payments).count("shipped") + 1)
    await shop.kill()
    ticket = await waiting(client, started["id"])
    assert ticket["kind"] == "outcome_unknown"
    await client.decide(ticket["run"], "cancel")
    await client.ended(started["id"])
    assert "is away" in await text_of_call(client, "visits", "net")
    await shop.start()

    async def is_back() -> bool:
        return await text_of_call(client, "visits", "net") == "1"

    await eventually(is_back)


async def test_a_question_is_answered_on_another_worker_and_has_one_effect(
    client: Client,
    shared_database_url: str,
    agents: Path,
    worker: WorkerProcess,
    payments: Path,
) -> None:
    started = await client.start("shop", prompt("pay", amount=70))
    ticket = await waiting(client, started["id"])
    assert ticket["kind"] == "input"
    worker.kill()
    await worker.gone()
    async with working(shared_database_url, agents=agents):
        await client.decide(ticket["run"], "respond", result={"agrees": True, "note": "other"})
        result = await result_of(client, await client.ended(started["id"]))
    assert result["content"][0]["text"] == "paid 70"
    assert [line for line in written(payments) if line.startswith("paid 70")] == [
        "paid 70 True other"
    ]
