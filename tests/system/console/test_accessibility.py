"""axe-core finds nothing on any page: light, dark and on a phone; empty, full and in error; by keyboard alone."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Browser, Page, Route, expect

from app.console.pages import PAGES
from tests.support.servers import Server
from tests.support.streams import Client
from tests.system.console.browser import PHONE, TEST_SECONDS, WIDE, User, using
from tests.system.readers import CLIENTS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]

AXE = Path(CLIENTS) / "node_modules" / "axe-core" / "axe.min.js"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
READING = "**/v1/*/**", "**/v1/*", "**/health", "**/metrics"
"""Addresses of all that pages read, except who the user is."""
PAGES_AFTER_SIGN_IN = [page for page in PAGES if page != "login"]
RULES = {"runOnly": {"type": "tag", "values": TAGS}}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": WIDE},
    "dark": {"color_scheme": "dark", "viewport": WIDE},
    "phone": {"color_scheme": "light", "viewport": PHONE, "has_touch": True},
}


async def violations(page: Page) -> list[str]:
    """What axe-core finds. It runs outside of the page's policy, which stays on."""
    await page.evaluate(AXE.read_text())
    found = await page.evaluate("rules => axe.run(document, rules)", RULES)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


async def fits(page: Page) -> bool:
    """Whether nothing is wider than the page."""
    wide: bool = await page.evaluate(
        "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    return wide


async def check(user: User) -> None:
    await user.loaded()
    assert await violations(user.page) == [], user.page.url
    assert await fits(user.page), user.page.url


async def waiting_run(client: Client, agent: str, prompt: str) -> dict[str, Any]:
    return await client.settled((await client.start(agent, prompt))["id"])


@pytest.mark.parametrize("look", LOOKS)
async def test_forms_and_dialogs_of_tickets_and_runs(
    team: Server, browser: Browser, look: str
) -> None:
    async with team.client("ann") as client:
        arguments = {"number": "A-17", "amount": 80, "lines": ["a lamp " * 40]}
        run = await waiting_run(client, "clerk", f"CALL refund {json.dumps(arguments)}")
        asked = await waiting_run(client, "asker", "CALL fill_in {}")
        talk = "# Title\n\n- **bold** `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\ncode\n```"
        said = await client.ended((await client.start("talker", talk))["id"])
    async with using(browser, team.base, f"full-{look}", key="ann", **LOOKS[look]) as user:
        await check(user)
        await user.open(f"tickets/{run['waiting']['tickets'][0]['id']}")
        await check(user)
        for name in ("Approve", "Edit", "Reject"):
            await user.button(name).first.click()
            await check(user)
            await user.button("Back").click()
        await user.open(f"tickets/{asked['waiting']['tickets'][0]['id']}")
        await user.button("Answer").click()
        await check(user)
        for one in (run, said):
            await user.open(f"runs/{one['id']}")
            await check(user)
            await user.page.get_by_role("tab", name="Audit").click()
            await check(user)
        await user.open("start")
        await check(user)
        await user.button("Keyboard help").click()
        await check(user)


@pytest.mark.parametrize("look", LOOKS)
async def test_each_page_with_content(team: Server, browser: Browser, look: str) -> None:
    async with team.client("ann") as client:
        run = await waiting_run(client, "clerk", f'CALL refund {{"number": "{look}", "amount": 1}}')
    ids = {
        "tickets/{id}": run["waiting"]["tickets"][0]["id"],
        "runs/{id}": run["id"],
        "threads/{id}": run["thread_id"],
        "agents/{id}": "reporter",
        "mcp-servers/{id}": "away",
    }
    async with using(browser, team.base, f"each-{look}", key="ann", **LOOKS[look]) as user:
        for page in PAGES_AFTER_SIGN_IN:
            await user.open(page.replace("{id}", ids[page]) if "{id}" in page else page)
            await expect(user.page.get_by_role("alert")).to_have_count(0)
            await check(user)


@pytest.mark.parametrize("look", LOOKS)
async def test_each_page_without_content(team: Server, browser: Browser, look: str) -> None:
    """The lists are empty, and what an address names isn't there."""

    async def nothing(route: Route) -> None:
        await route.fulfill(json={"items": [], "has_more": False, "next_cursor": None})

    async with using(browser, team.base, f"empty-{look}", **LOOKS[look]) as user:
        user.expected_statuses = {401}
        await user.open("login")
        await check(user)
        await user.sign_in("stranger")
        await user.sees("Nothing waits for you")
        user.expected_statuses = {404}
        # The agents and MCP servers of a server are the same for all tenants.
        for path in ("agents", "mcp-servers", "workers", "usage"):
            await user.page.route(re.compile(rf"/v1/{path}(\?|$)"), nothing)
        for page in PAGES_AFTER_SIGN_IN:
            await user.open(page.replace("{id}", str(uuid4())))
            if "{id}" in page:
                await expect(user.page.get_by_role("alert").first).to_contain_text("Not here")
            await check(user)


@pytest.mark.parametrize("look", LOOKS)
async def test_each_page_in_error(team: Server, browser: Browser, look: str) -> None:
    async def refuse(route: Route) -> None:
        if route.request.url.endswith("/v1/me"):
            await route.fallback()
            return
        problem = {"code": "overloaded", "detail": "Try again.", "trace_id": "t-1", "status": 503}
        await route.fulfill(status=503, json=problem)

    async with using(browser, team.base, f"error-{look}", **LOOKS[look]) as user:
        user.expected_statuses = {401, 503}
        await user.open("login")
        await user.page.get_by_label("API key").fill("wrong")
        await user.press("Enter")
        await expect(user.page.get_by_role("alert")).to_contain_text("unknown")
        await check(user)
        await user.sign_in("ann")
        for address in READING:
            await user.page.route(address, refuse)
        for page in PAGES_AFTER_SIGN_IN:
            await user.page.goto(f"{team.base}/console/{page.replace('{id}', str(uuid4()))}")
            await expect(user.page.get_by_role("alert").first).to_contain_text("overloaded")
            await check(user)


async def test_a_ticket_is_found_and_decided_by_keyboard_alone(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client:
        prompt = 'CALL refund {"number": "KEYS", "amount": 1}'
        run = await waiting_run(client, "clerk", prompt)
        async with using(browser, team.base, "keys", key="ann") as user:
            await user.press("j")
            await expect(user.page.locator(".card")).to_contain_text("KEYS")
            await user.press("r")
            await expect(user.page.get_by_label("Reason, for the model (optional)")).to_be_focused()
            await user.page.keyboard.type("not today")
            await user.press("Control+Enter")
            await expect(user.page.locator(".card")).to_contain_text("rejected")
            assert "not today" in (await client.ended(run["id"]))["final_output"]
            await user.press("?")
            await user.sees("Use single letters as keys")
            await user.press("Escape")
            await expect(user.page.get_by_role("dialog")).to_have_count(0)
