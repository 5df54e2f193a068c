"""Runs are paused and resumed; their events are read whole; what they cost is shown."""

import asyncio
import json
from pathlib import Path

import asyncpg
import pytest
from playwright.async_api import Browser, expect

from tests.support.conditions import eventually
from tests.support.databases import Databases
from tests.support.servers import Server, serving
from tests.system.console.browser import TEST_SECONDS, using
from tests.system.console.conftest import STEADY
from tests.system.console.test_accessibility import check

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]

LONG = "x" * 5_000
"""A text that a list of events cuts."""


async def test_a_run_is_paused_and_resumed(team: Server, browser: Browser) -> None:
    async with team.client("ann") as client, using(browser, team.base, "pause", key="ann") as user:
        prompt = 'CALL refund {"number": "LATER", "amount": 1}'
        run = await client.settled((await client.start("clerk", prompt))["id"])
        await user.open(f"runs/{run['id']}")
        await user.button("Pause").click()
        await user.page.get_by_label("Reason").fill("lunch")
        await user.button("Pause the run").click()
        head = user.page.locator(".run-head")
        await expect(head).to_contain_text("paused")
        explained = user.page.locator(".explain")
        await expect(explained).to_contain_text("ann has paused it: lunch")
        await expect(explained).not_to_contain_text("/v1/")
        await user.button("Resume").click()
        await user.button("Resume the run").click()
        await expect(head).to_contain_text("needs a person")
        await expect(user.button("Pause")).to_be_visible()
        assert (await client.run(run["id"]))["pause"] is None


async def test_a_run_that_waits_for_a_background_task_shows_it_and_the_task_is_cancelled(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "task", key="ann") as user:
        run = await client.settled((await client.start("spider", "CALL crawl {}"))["id"])
        await user.open(f"runs/{run['id']}")
        tasks = user.page.get_by_role("list", name="Background tasks")
        await expect(tasks).to_contain_text("crawl")
        await expect(tasks).to_contain_text("runs for")
        await check(user)
        await user.press("2")
        await expect(user.page.locator(".span.task")).to_contain_text("crawl")
        await user.button("Cancel the task").click()
        await user.button("Cancel it").click()
        await expect(user.page.locator(".run-head")).to_contain_text("succeeded")
        await expect(tasks).to_have_count(0)
        await user.button("Table").click()
        row = user.page.get_by_role("row").filter(has_text="crawl").filter(has_text="cancelled")
        await expect(row).to_have_count(1)
        [task] = (await client.get(f"/v1/runs/{run['id']}/tasks"))["items"]
        assert task["outcome"] == "cancelled"


async def test_an_event_is_read_whole_when_it_is_opened_and_downloaded_whole(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "whole", key="ann") as user:
        started = await client.start("clerk", f'CALL look_up {{"number": "{LONG}"}}')
        await client.ended(started["id"])
        async with user.page.expect_response(lambda one: "max_field_bytes" in one.url) as response:
            await user.open(f"runs/{started['id']}?tab=events")
        assert LONG not in await (await response.value).text()
        await user.page.get_by_label("Type", exact=True).select_option("tool_call_ready")
        await user.page.locator(".event").click()
        await expect(user.page.locator(".event-body")).to_contain_text(LONG)
        async with user.page.expect_download() as download:
            await user.button("Download NDJSON").click()
        file = await download.value
        [line] = (await asyncio.to_thread(Path(await file.path()).read_text)).splitlines()
        assert json.loads(line)["arguments"] == {"number": LONG}


async def test_a_run_without_its_events_still_shows_what_it_said(
    postgres: Databases, browser: Browser
) -> None:
    settings = {**STEADY, "retention_interval": 0.2, "event_retention": 60.0}
    async with (
        postgres.fresh() as url,
        serving(url, **settings) as server,
        server.client() as client,
    ):
        run = await client.ended((await client.start("clerk", "Remember me"))["id"])
        connection = await asyncpg.connect(url)
        await connection.execute("UPDATE runs SET finished_at = finished_at - interval '1 hour'")
        await connection.close()

        async def are_removed() -> bool:
            response = await client.http.get(f"/v1/runs/{run['id']}/events")
            return bool(response.status_code == 410)

        await eventually(are_removed)
        async with using(browser, server.base, "removed") as user:
            user.expected_statuses = {410}
            for query in ("?tab=timeline", "?tab=events", "?at=3"):
                await user.open(f"runs/{run['id']}{query}")
                await user.sees("The events of this run are no longer kept")
            await user.button("Show the run as it is now").click()
            await expect(user.page.get_by_role("log")).to_contain_text("Remember me")


async def test_costs_are_shown_where_prices_are_known(team: Server, browser: Browser) -> None:
    async with team.client("ann") as client, using(browser, team.base, "cost", key="ann") as user:
        priced = await client.ended((await client.start("crawler", "Hi"))["id"])
        unpriced = await client.ended((await client.start("clerk", "Hi"))["id"])
        assert priced["used"]["cost_usd"] > 0
        await user.open(f"runs/{priced['id']}")
        await expect(user.page.locator(".run-head")).to_contain_text("$")
        await user.open(f"runs/{unpriced['id']}")
        await expect(user.page.locator(".run-head")).not_to_contain_text("$")
        await user.open("runs?agent=crawler")
        await expect(user.page.locator(f"[data-run='{priced['id']}']")).to_contain_text("$")
        await user.open("system")
        spent = user.page.get_by_role("region", name="Tokens and cost", exact=True)
        await user.button("Show them").click()
        await expect(spent.locator("tbody")).to_contain_text("no known price")
        await user.button("By agent").click()
        row = spent.get_by_role("row").filter(has_text="crawler")
        await expect(row).to_contain_text("$")
