"""Runs are found, cancelled, retried and forked; a run's tabs tell what it did; people talk on threads."""

import json
import re
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.support.servers import Server
from tests.support.streams import Client
from tests.system.console.browser import TEST_SECONDS, User, using
from tests.system.console.test_accessibility import LOOKS, check

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]

LONG = "alpha beta gamma delta " * 200
"""Words that `crawler` repeats one each second, so its run goes on until it is cancelled."""


def refund(number: str) -> str:
    arguments = json.dumps({"number": number, "amount": 80})
    return f'CALL look_up {{"number": "{number}"}} CALL refund {arguments}'


async def approved(client: Client, number: str) -> dict[str, Any]:
    """A run whose refund was approved."""
    run = await client.settled((await client.start("clerk", refund(number)))["id"])
    decision = {"ticket_id": run["waiting"]["tickets"][0]["id"], "action": "approve"}
    await client.post(f"/v1/runs/{run['id']}/decisions", {"decisions": [decision]})
    return await client.ended(run["id"])


async def test_rows_keep_their_places_and_a_run_is_cancelled_from_its_row(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "runs", key="ann") as user:
        first = await client.start("crawler", LONG)
        await user.open("runs?agent=crawler&state=running")
        row = user.page.locator(f"[data-run='{first['id']}']")
        await expect(row).to_contain_text("running")
        later = await client.start("crawler", LONG)
        await expect(user.button("1 new")).to_be_visible()
        await expect(user.page.locator(f"[data-run='{later['id']}']")).to_have_count(0)
        await row.get_by_role("button").click()
        await user.page.get_by_role("menuitem", name="Cancel").click()
        await user.page.get_by_label("Reason").fill("enough")
        await user.button("Cancel the run").click()
        await expect(row).to_contain_text("cancelled")
        assert (await client.ended(first["id"]))["outcome"] == "cancelled"
        await expect(row).to_contain_text("no longer fits")
        await user.button("1 new").click()
        await expect(user.page.locator(f"[data-run='{later['id']}']")).to_contain_text("running")
        await expect(row).to_have_count(0)
        await client.http.post(f"/v1/runs/{later['id']}/cancel", json={})
        await client.ended(later["id"])


async def test_filters_are_in_the_address_and_a_run_is_retried(
    team: Server, browser: Browser
) -> None:
    async with (
        team.client("ann") as client,
        using(browser, team.base, "filters", key="ann") as user,
    ):
        run = await client.start("clerk", 'CALL look_up {"number": "F"}', metadata={"order": "F"})
        await client.ended(run["id"])
        await user.open("runs")
        await user.page.get_by_label("Metadata: key=value").fill("order=F")
        await user.press("Enter")
        await expect(user.page.locator("tbody tr")).to_have_count(1)
        await user.is_at(re.compile("metadata=order%3DF"))
        await user.page.reload()
        await user.ready()
        await expect(user.page.locator("tbody tr")).to_have_count(1)
        await user.page.get_by_label("State").select_option("failed")
        await user.sees("No run fits these filters")
        stopped = await client.settled((await client.start("clerk", refund("F-2")))["id"])
        await client.http.post(f"/v1/runs/{stopped['id']}/cancel", json={"reason": "too soon"})
        await client.ended(stopped["id"])
        await user.open(f"runs/{stopped['id']}")
        await user.button("Retry").click()
        await user.button("Start a new run").click()
        head = user.page.locator(".run-head")
        await expect(head).to_contain_text("succeeded")
        await expect(head.get_by_role("heading")).not_to_contain_text(stopped["id"][-8:])
        before = head.get_by_role("link", name="retry of run")
        await expect(before).to_have_attribute("href", f"/console/runs/{stopped['id']}")


async def test_tabs_and_replay_tell_what_a_run_did(team: Server, browser: Browser) -> None:
    async with team.client("ann") as client, using(browser, team.base, "tabs", key="ann") as user:
        run = await approved(client, "T-1")
        await user.open(f"runs/{run['id']}?tab=timeline")
        await expect(user.page.locator(".span.wait")).to_contain_text("waits for an approval")
        await expect(user.page.locator(".marks")).to_contain_text("ann: approved")
        await user.button("Table").click()
        await expect(user.page.locator("tbody")).to_contain_text("refund")
        await user.press("4")
        await user.page.get_by_label("Type", exact=True).select_option("ticket_decided")
        await expect(user.page.locator(".event")).to_have_count(1)
        await user.page.locator(".event").click()
        await expect(user.page.locator(".event-body")).to_contain_text('"decided_by": "ann"')
        await user.button("Show the run as it was then").click()
        await user.press("1")
        conversation = user.page.get_by_role("log")
        await expect(conversation).to_contain_text("waits")
        await expect(conversation).not_to_contain_text("refund answered")
        await user.is_at(re.compile("at="))
        await user.button("Back to now").click()
        await expect(conversation).to_contain_text("refund answered")
        await user.press("7")
        await expect(user.page.get_by_role("tabpanel")).to_contain_text("revision")


async def test_an_agent_is_tried_and_its_thread_is_continued_and_forked(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "chat", key="ann") as user:
        await user.open("agents/clerk")
        await user.page.get_by_label("Try it: write to clerk").fill('CALL look_up {"number": "H"}')
        await user.press("Control+Enter")
        await user.page.wait_for_url("**/console/threads/*")
        conversation = user.page.get_by_role("log")
        await expect(conversation).to_contain_text("look_up answered: order H")
        await user.page.get_by_label("Write a message").fill(refund("H-2"))
        await user.press("Control+Enter")
        await expect(conversation).to_contain_text("clerk wants to run refund")
        thread = await client.get(f"/v1/threads/{user.page.url.rpartition('/')[2]}")
        run_page = f"/console/runs/{thread['open_run_id']}"
        opened = user.page.get_by_role("link", name="Open run", exact=True)
        await expect(opened).to_have_attribute("href", run_page)
        await user.page.get_by_label("Write a message").fill("and then this")
        await user.button("Send").click()
        waiting = user.page.get_by_role("region", name="Messages that wait")
        await expect(waiting).to_contain_text("and then this")
        await waiting.get_by_role("button", name="Retract").click()
        await expect(waiting).to_have_count(0)
        await user.button("Approve").click()
        await user.button("Approve and run refund").click()
        await expect(conversation).to_contain_text("refunded 80 for H-2")
        last = user.page.get_by_role("link", name="Last run", exact=True)
        await expect(last).to_have_attribute("href", run_page)
        await last.click()
        await user.ready()
        await user.button("Fork").click()
        await user.page.get_by_label("Title").fill("a copy of H")
        await user.button("Make the copy").click()
        await user.page.wait_for_url("**/console/threads/*")
        await expect(user.page.get_by_role("heading", name="a copy of H")).to_be_visible()
        await expect(conversation).to_contain_text("look_up answered: order H")


async def test_the_system_page_shows_health_and_metrics(team: Server, browser: Browser) -> None:
    async with team.client("ann") as client, using(browser, team.base, "system", key="ann") as user:
        await client.settled((await client.start("clerk", refund("S")))["id"])
        await user.open("system")
        await expect(user.page.get_by_role("region", name="Health")).to_contain_text("healthy")
        metrics = user.page.get_by_role("region", name="Metrics")
        await expect(metrics).to_contain_text("Tokens of script")
        counts = user.page.get_by_role("region", name="Runs that are not done")
        await counts.get_by_role("link", name="need an approval").click()
        await user.page.wait_for_url("**/console/runs?state=tool_permission")
        await user.ready()
        await expect(user.page.locator("tbody tr").first).to_contain_text("needs a person")


@pytest.mark.parametrize("look", LOOKS)
async def test_pages_of_runs_threads_and_agents_are_accessible(
    team: Server, browser: Browser, look: str
) -> None:
    async with team.client("ann") as client:
        run = await approved(client, f"X-{look}")
    async with using(browser, team.base, f"operate-{look}", key="ann", **LOOKS[look]) as user:
        for path in _paths(run):
            await user.open(path)
            await check(user)
        await _check_dialogs(user, run)
    async with using(browser, team.base, f"empty-{look}", key="stranger", **LOOKS[look]) as user:
        for path, text in (("runs", "No runs yet"), ("threads", "No threads yet")):
            await user.open(path)
            await user.sees(text)
            await check(user)


def _paths(run: dict[str, Any]) -> list[str]:
    tabs = ("timeline", "tree", "events", "artifacts", "state")
    of_run = [f"runs/{run['id']}?tab={tab}" for tab in tabs]
    replay = f"runs/{run['id']}?at=10"
    return [
        "runs",
        *of_run,
        replay,
        "threads",
        f"threads/{run['thread_id']}",
        "agents/clerk",
        "system",
    ]


async def _check_dialogs(user: User, run: dict[str, Any]) -> None:
    await user.open("runs")
    await user.page.locator("tbody tr").first.get_by_role("button").click()
    await check(user)
    await user.open(f"runs/{run['id']}")
    await user.button("Fork").click()
    await check(user)
