"""Tools of an MCP server over HTTP, while the server and Holdfast are killed."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import eventually
from tests.support.mcp.agents_files import with_shop
from tests.support.ports import free_port
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def payments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shop") / "payments"


@pytest.fixture(scope="module")
async def server(
    shared_database_url: str, payments: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    file = with_shop(
        tmp_path_factory.mktemp("agents"), payments, {"shop": {"approval": ["environment"]}}
    )
    async with serving(shared_database_url, agents=file) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as one:
        yield one


def prompt(tool: str, server: str = "shop", **arguments: object) -> str:
    return f"CALL {server}__{tool} {json.dumps(arguments)}"


def written(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def result_of(client: Client, run: dict[str, Any]) -> dict[str, Any]:
    """The last result of a tool in the run's log."""
    page = await client.get(f"/v1/threads/{run['thread_id']}/messages")
    results = [each for each in page["items"] if each["role"] == "tool"]
    newest: dict[str, Any] = results[-1]
    return newest


async def waiting(client: Client, run_id: str) -> dict[str, Any]:
    """The run, once it waits for a ticket; and that ticket."""
    run = await client.settled(run_id)
    assert run["status"] == "waiting", run
    [ticket] = run["waiting"]["tickets"]
    return {"run": run, **ticket}


async def test_a_call_gets_the_servers_result(client: Client) -> None:
    started = await client.start("shop", prompt("find_order", number="A-7"))
    run = await client.ended(started["id"])
    result = await result_of(client, run)
    assert result["result"]["data"] == {"number": "A-7", "state": "sent"}


async def test_a_call_needs_approval_if_the_servers_table_says_so(client: Client) -> None:
    started = await client.start("shop", prompt("environment", name="SHOP_KEY"))
    ticket = await waiting(client, started["id"])
    assert ticket["kind"] == "approval"
    await client.decide(ticket["run"], "approve")
    run = await client.ended(started["id"])
    assert (await result_of(client, run))["content"][0]["text"] == "k" * 32


async def test_the_server_gets_no_variable_that_its_table_does_not_name(client: Client) -> None:
    started = await client.start("shop", prompt("environment", name="DATABASE_URL"))
    ticket = await waiting(client, started["id"])
    await client.decide(ticket["run"], "approve")
    run = await client.ended(started["id"])
    assert (await result_of(client, run))["content"][0]["text"] == "unset"


async def test_an_unsafe_call_whose_server_died_asks_what_it_did(
    client: Client, payments: Path
) -> None:
    started = await client.start("shop", prompt("die_unsafely"))
    ticket = await waiting(client, started["id"])
    assert ticket["kind"] == "outcome_unknown"
    assert "connection to the MCP server 'shop' broke" in ticket["message"]
    await client.decide(ticket["run"], "respond", result="nothing happened")
    run = await client.ended(started["id"])
    assert (await result_of(client, run))["content"][0]["text"] == "nothing happened"
    assert written(payments).count("died") == 1


async def test_a_safe_call_whose_server_died_is_repeated(client: Client, payments: Path) -> None:
    started = await client.start("shop", prompt("die_once"))
    run = await client.ended(started["id"])
    assert (await result_of(client, run))["content"][0]["text"] == "survived"
    assert written(payments).count("tried") == 2


async def test_a_cancelled_call_leaves_the_server_usable(client: Client, payments: Path) -> None:
    started = await client.start("shop", prompt("wait", seconds=600))

    async def is_called() -> bool:
        return "waiting" in written(payments)

    await eventually(is_called)
    await client.post(f"/v1/runs/{started['id']}/cancel", status=202)
    await client.ended(started["id"])
    again = await client.start("shop", prompt("find_order", number="B"))
    assert (await client.ended(again["id"]))["outcome"] == "succeeded"


async def test_a_question_is_answered_after_both_have_restarted_and_has_one_effect(
    shared_database_url: str, tmp_path: Path
) -> None:
    payments = tmp_path / "payments"
    file = with_shop(tmp_path / "agents", payments, {"shop": {}})
    settings = {"agents": file, "port": free_port()}
    async with serving(shared_database_url, **settings) as first:
        async with first.client() as client:
            started = await client.start("shop", prompt("pay", amount=80))
            ticket = await waiting(client, started["id"])
            programs = programs_of(first)
            first.kill()
            await first.gone()
    await eventually(all_gone(programs))
    assert ticket["kind"] == "input"
    assert ticket["message"] == "shop asks: May 80 be paid?"
    assert ticket["response_schema"]["required"] == ["agrees"]
    assert "carry" not in ticket
    assert sorted(ticket["allowed_actions"]) == ["cancel", "reject", "respond"]
    async with serving(shared_database_url, **settings) as second, second.client() as client:
        answer = {"agrees": True, "note": "fine"}
        await client.decide(ticket["run"], "respond", result=answer)
        run = await client.ended(started["id"])
        assert (await result_of(client, run))["content"][0]["text"] == "paid 80"
    assert written(payments) == ["paid 80 True fine"]


async def test_a_rejected_question_is_declined(client: Client, payments: Path) -> None:
    before = written(payments)
    started = await client.start("shop", prompt("pay", amount=90))
    ticket = await waiting(client, started["id"])
    await client.decide(ticket["run"], "reject")
    run = await client.ended(started["id"])
    assert (await result_of(client, run))["result"]["outcome"] == "failed"
    assert written(payments) == before


def programs_of(server: Server) -> list[int]:
    """The processes of the shop that this server has started."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [int(each) for each in children if b"shop.py" in _command_line(int(each))]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def all_gone(programs: list[int]) -> Any:
    assert programs

    async def gone() -> bool:
        return not any(b"shop.py" in _command_line(each) for each in programs)

    return gone


async def test_the_servers_program_ends_with_holdfast(
    shared_database_url: str, tmp_path: Path
) -> None:
    file = with_shop(tmp_path / "agents", tmp_path / "payments", {"shop": {}})
    async with serving(shared_database_url, agents=file) as server, server.client() as client:
        started = await client.start("shop", prompt("find_order", number="A"))
        await client.ended(started["id"])
        programs = programs_of(server)
        server.terminate()
        async with asyncio.timeout(60):
            await server.gone()
    assert not any(b"shop.py" in _command_line(each) for each in programs)
