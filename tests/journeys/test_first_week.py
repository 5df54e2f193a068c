"""What a team does in its first week, by the documents alone: an agents folder, approvals and crashes.

The same work is done from a terminal and by a web page of another origin. Each time the server is
killed while a call waits, and in the middle of an answer. Each refund and e-mail happens once.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.support.commands import holdfast
from tests.support.databases import Databases
from tests.support.shop import DELEGATE, FOLDER, LONG, PROMPTS, THREE_TOOLS, Shop, killed
from tests.support.streams import Client
from tests.support.terminals import running

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "approve_over_http.py"
CLIENT = FOLDER / "follow_over_http.py"
ASKED = re.compile(r"\[approve/reject\]")
ORIGIN = "http://shop.test:3000"


@pytest.fixture
async def shop(
    postgres: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Shop]:
    monkeypatch.setenv("SHOP_LOG", str(tmp_path / "shop.log"))
    async with postgres.fresh() as url:
        yield Shop(url, tmp_path / "shop.log", ORIGIN)


@PROMPTS
async def test_from_a_terminal(shop: Shop, prompt: str, effects: dict[str, int]) -> None:
    """Without a terminal to ask on: `run` leaves the ticket open, and `decide` answers it."""
    async with shop.serving() as server:
        asked = await holdfast("run", prompt, url=shop.base)
        assert asked.code == 6, asked.err
        [run] = re.findall(r"^run (\S+) of thread", asked.err, re.M)
        await killed(server)
    async with shop.serving():
        [line] = (await holdfast("tickets", "--json", url=shop.base)).out.splitlines()
        ticket = json.loads(line)
        assert ticket["tool_name"] == "refund"
        why = await holdfast("explain", run, url=shop.base)
        assert f"holdfast decide approve {ticket['id']}" in why.out
        decided = await holdfast("decide", "approve", url=shop.base)
        assert decided.code == 0, decided.err
        followed = await holdfast("tail", run, url=shop.base)
        assert re.search(r"run_finish +natural_end", followed.out)
        assert "Refunded 80.0 for order A-7." in followed.out
    assert shop.effects() == effects


async def test_an_answer_on_the_terminal_survives_a_kill(shop: Shop) -> None:
    async with shop.serving() as server:
        running = asyncio.get_running_loop().create_task(holdfast("run", LONG, url=shop.base))
        async with Client(shop.base) as client:
            await _text_of_the_first_run(client)
        await killed(server)
    async with shop.serving():
        done = await running
    assert done.code == 0, done.err
    assert f"You said: {LONG}\n" in done.out


async def _text_of_the_first_run(client: Client) -> None:
    """Wait until the first run has written text."""
    while not (items := (await client.get("/v1/runs"))["items"]):
        pass
    async with client.events(f"/v1/runs/{items[-1]['id']}", follow=1) as events:
        await events.until("text_delta")


@PROMPTS
async def test_by_a_program_over_http(shop: Shop, prompt: str, effects: dict[str, int]) -> None:
    """The program follows over both kills: while it asks a person, and while the model answers."""
    command = (sys.executable, str(CLIENT), shop.base, prompt)
    async with shop.serving() as server:
        async with running(*command) as program:
            await program.printed(ASKED)
            await killed(server)
            async with shop.serving() as second, Client(shop.base) as client:
                program.type("approve")
                await _text_of_the_first_run(client)
                await killed(second)
            async with shop.serving():
                assert await program.gone() == 0, program.log
    assert "Refunded 80.0 for order A-7." in program.log
    assert program.log.count("[approve/reject]") == 1
    assert shop.effects() == effects


async def test_the_example_asks_about_the_calls_of_a_delegate(shop: Shop) -> None:
    command = (sys.executable, str(EXAMPLE), DELEGATE)
    environment = {"HOLDFAST_URL": shop.base, "HOLDFAST_AGENT": "support"}
    async with shop.serving(), running(*command, **environment) as program:
        await program.printed(re.compile("Approve?"))
        program.type("y")
        assert await program.gone() == 0, program.log
    assert shop.effects() == {"refund": 1}


async def test_by_a_web_page_of_another_origin(shop: Shop) -> None:
    """The requests that a browser makes for a page of another origin; `tests/system` has a real browser."""
    page = {"Origin": ORIGIN}
    preflight = {
        **page,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type, last-event-id",
    }
    async with shop.serving() as server, httpx2.AsyncClient(base_url=shop.base) as http:
        allowed = await http.options("/v1/runs", headers=preflight)
        assert allowed.status_code in (200, 204)
        assert allowed.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "POST" in allowed.headers["Access-Control-Allow-Methods"]
        body = {
            "agent_id": "support",
            "messages": [{"role": "user", "content": f"{THREE_TOOLS} {LONG}"}],
        }
        stream = {**page, "Accept": "text/event-stream"}
        first = await http.post("/v1/runs", json=body, headers=stream, timeout=30)
        assert first.headers["Access-Control-Allow-Origin"] == ORIGIN
        run = first.headers["Content-Location"]
        last = re.findall(r"^id: (\d+)$", first.text, re.M)[-1]
        finish = json.loads(re.findall(r"^data: (.*)$", first.text, re.M)[-1])
        await killed(server)
    assert finish["waiting"]["needs_decision"] is True
    decisions = [
        {"ticket_id": ticket["id"], "action": "approve"} for ticket in finish["waiting"]["tickets"]
    ]
    async with shop.serving(), httpx2.AsyncClient(base_url=shop.base) as http:
        decided = await http.post(f"{run}/decisions", json={"decisions": decisions}, headers=page)
        assert decided.status_code == 200, decided.text
        assert decided.headers["Access-Control-Allow-Origin"] == ORIGIN
        rest = await http.get(
            f"{run}/events", headers={**stream, "Last-Event-ID": last}, timeout=30
        )
        assert rest.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "natural_end" in rest.text
        other = await http.get("/v1/runs", headers={"Origin": "http://evil.test"})
        assert "Access-Control-Allow-Origin" not in other.headers
    assert shop.effects() == {"refund": 1, "e-mail": 1}
