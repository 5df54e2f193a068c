"""Calls that an MCP server continues as tasks: the run waits for them without a worker."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.test_mcp_servers import prompt, result_of, written
from tests.support.conditions import eventually
from tests.support.ports import free_port
from tests.support.servers import serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

SLOW = Path(__file__).parents[1] / "support" / "mcp" / "slow_shop.py"


def agents_file(folder: Path, poll_ms: int = 1500) -> Path:
    file = folder / "agents.toml"
    file.write_text(
        "[models.script]\nprovider = 'scripted'\nscript = 'plain'\n"
        f"[mcp.slow]\ncommand = '{sys.executable}'\nargs = ['{SLOW}']\nstartup_timeout = 50\n"
        f"env = {{ SLOW_FOLDER = '{folder}', SLOW_POLL_MS = '{poll_ms}' }}\n"
        "[agents.slow]\nmodel = 'script'\ntools = ['slow/*']\n"
    )
    return file


async def ticket_of(client: Client, run_id: str, kind: str) -> dict[str, Any]:
    """The run's open ticket, once it is of this kind."""

    async def found() -> dict[str, Any] | None:
        run = await client.run(run_id)
        tickets = run["waiting"]["tickets"] if run["status"] == "waiting" else []
        return {**tickets[0], "run": run} if tickets and tickets[0]["kind"] == kind else None

    return await eventually(found)


async def test_a_task_that_asks_survives_a_kill_of_both_sides_and_has_one_effect(
    shared_database_url: str, tmp_path: Path
) -> None:
    settings = {"agents": agents_file(tmp_path), "port": free_port()}
    async with serving(shared_database_url, **settings) as first, first.client() as client:
        started = await client.start("slow", prompt("order", server="slow", item="tea"))
        ticket = await ticket_of(client, started["id"], "event")
        assert "slow works on a task" in ticket["message"]
        assert "carry" not in ticket
        first.kill()
        await first.gone()
    (tmp_path / "ready").touch()
    async with serving(shared_database_url, **settings) as second, second.client() as client:
        question = await ticket_of(client, started["id"], "input")
        assert question["message"] == "slow asks: May it be sent?"
        await client.decide(question["run"], "respond", result={"ok": True})
        result = await result_of(client, await client.ended(started["id"]))
    assert result["content"][0]["text"] == "tea sent: True"
    assert written(tmp_path / "log") == ["ordered tea", "sent tea"]


async def test_a_task_that_is_lost_or_cancelled(shared_database_url: str, tmp_path: Path) -> None:
    file = agents_file(tmp_path, poll_ms=100)
    async with serving(shared_database_url, agents=file) as server, server.client() as client:
        started = await client.start("slow", prompt("order", server="slow", item="milk"))
        await eventually(lambda: is_written(tmp_path, "ordered milk"))
        await client.post(f"/v1/runs/{started['id']}/cancel", status=202)
        await client.ended(started["id"])
        await eventually(lambda: is_written(tmp_path, "cancelled"))

        started = await client.start("slow", prompt("order", server="slow", item="salt"))
        await eventually(lambda: is_written(tmp_path, "ordered salt"))
        forget_orders(tmp_path)
        ticket = await ticket_of(client, started["id"], "outcome_unknown")
        assert "no longer knows its task" in ticket["message"]


def forget_orders(folder: Path) -> None:
    for order in folder.glob("order-*"):
        order.unlink()


async def is_written(folder: Path, line: str) -> bool:
    return line in written(folder / "log")
