"""axe-core finds nothing in parts of pages that only some tickets and runs show: each kind of card, each tab in error."""

import json
from typing import Any

import pytest
from playwright.async_api import Browser, Route, expect

from tests.support.servers import Server
from tests.support.streams import Client
from tests.system.console.browser import TEST_SECONDS, using
from tests.system.console.test_accessibility import LOOKS, check

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(TEST_SECONDS),
    pytest.mark.parametrize("look", LOOKS),
]

TABS = ("timeline", "tree", "events", "audit", "artifacts", "state")
"""The tabs of a run that read something of their own."""
LONG_WORDS = "a_name_without_any_place_to_break_it_" * 8
EVIDENCE = {
    "started_at": "2026-01-02T03:04:05Z",
    "worker": {"id": "w-1", "host": "host-1", "pid": 7, "heartbeat_at": "2026-01-02T03:04:05Z"},
    "idempotency_key": "key-" + "7" * 60,
    "arguments": {"number": "A-18", "amount": 80},
    "progress": "half of it is sent",
    "streamed": "sending the letter\n" * 40,
    "reconcile": "the tool can't tell",
}
"""What is known about a call whose worker was lost."""


def refund(**more: Any) -> str:
    return f"CALL refund {json.dumps({'number': 'AXE', 'amount': 80, **more})}"


async def asked(client: Client, agent: str, prompt: str, **more: Any) -> dict[str, Any]:
    return await client.settled((await client.start(agent, prompt, **more))["id"])


def ticket_of(run: dict[str, Any]) -> str:
    return str(run["waiting"]["tickets"][0]["id"])


async def test_each_kind_of_card(team: Server, browser: Browser, look: str) -> None:
    async with team.client("ann") as ann, team.client("ben") as ben:
        look_ups = 'CALL look_up {"number": "A"} CALL look_up {"number": "B"}'
        soon = {"expires_in": 600, "on_expiry": "cancel_run"}
        voted = await asked(ann, "board", refund())
        await ben.decide(voted, "approve", reason=LONG_WORDS)
        edited = await asked(ann, "clerk", refund(lines=["a lamp"]))
        changed = {"number": LONG_WORDS, "amount": 7, "lines": []}
        await ben.decide(edited, "edit", arguments=changed, reason="too much")
        cards = {
            "not for you": voted,
            "limit": await asked(ann, "clerk", look_ups, limits={"steps": 1}, on_limit="ask"),
            "free answer": await asked(ann, "asker", "CALL ask_freely {}"),
            "signal": await asked(ann, "asker", 'CALL wait_for_payment {"invoice": "AXE"}'),
            "expires": await asked(ann, "clerk", refund(), ticket_policy=soon),
            "edited": edited,
        }
        # As if the worker of its call had been lost.
        lost = await ann.get(f"/v1/tickets/{ticket_of(cards['expires'])}")
        lost |= {"kind": "outcome_unknown", "evidence": EVIDENCE}
    async with using(browser, team.base, f"cards-{look}", key="ann", **LOOKS[look]) as user:
        for name, run in cards.items():
            await user.open(f"tickets/{ticket_of(run)}")
            await check(user)
            if name == "limit":
                await user.button("Raise by another amount").click()
                await check(user)

        async def shows(route: Route) -> None:
            await route.fulfill(json=lost)

        await user.page.route(f"**/v1/tickets/{lost['id']}", shows)
        await user.open(f"tickets/{lost['id']}")
        await user.sees("Did refund take effect?")
        await check(user)


async def test_selected_tickets_and_the_dialogs_of_the_inbox(
    team: Server, browser: Browser, look: str
) -> None:
    async with team.client("ann") as client:
        for number in ("ONE", "TWO"):
            await asked(client, "selector", refund(number=f"{number}-{look}", lines=[LONG_WORDS]))
    async with using(browser, team.base, f"bulk-{look}", key="ann", **LOOKS[look]) as user:
        await user.open("inbox?agent=selector")
        await user.page.get_by_label("Select").check()
        await check(user)
        await user.page.locator("[data-ticket]").first.click()
        await user.button("All of refund").click()
        await check(user)
        await user.button("Approve …").click()
        await check(user)
        await user.press("Escape")
        await user.press("Control+k")
        await user.page.get_by_label("Id of a run").fill("nothing like it")
        await user.press("Enter")
        await expect(user.page.get_by_role("alert")).to_be_visible()
        await check(user)


async def test_each_tab_of_a_run_in_error_and_without_content(
    team: Server, browser: Browser, look: str
) -> None:
    async with team.client("ann") as client:
        run = await asked(client, "clerk", refund())
        empty = await client.ended((await client.start("talker", "Hi"))["id"])
    base = f"**/v1/runs/{run['id']}"
    refused = (f"{base}/explain", f"{base}/events?*", f"{base}/audit*", f"{base}/artifacts*")
    async with using(browser, team.base, f"tabs-{look}", key="ann", **LOOKS[look]) as user:
        for tab in TABS:
            await user.open(f"runs/{empty['id']}?tab={tab}")
            await check(user)
        await user.open(f"runs/{run['id']}?tab=state")
        await expect(user.page.get_by_role("list", name="Open tickets")).to_be_visible()
        await check(user)
        user.expected_statuses = {503}
        for address in (*refused, "**/v1/run-summaries?*", f"{base}?include=state"):
            await user.page.route(address, refuse)
        for tab in TABS:
            await user.open(f"runs/{run['id']}?tab={tab}")
            panel = user.page.get_by_role("tabpanel")
            await expect(panel.get_by_role("alert").first).to_contain_text("overloaded")
            await check(user)


async def refuse(route: Route) -> None:
    if "follow=1" in route.request.url:
        await route.fallback()
        return
    problem = {"code": "overloaded", "detail": "Try again.", "trace_id": "t-1", "status": 503}
    await route.fulfill(status=503, json=problem)


async def test_a_part_that_failed_is_read_again(team: Server, browser: Browser, look: str) -> None:
    async with team.client("ann") as client:
        run = await asked(client, "clerk", refund())
    async with using(browser, team.base, f"again-{look}", key="ann", **LOOKS[look]) as user:
        user.expected_statuses = {503}
        for address in (f"**/v1/runs/{run['id']}/audit*", "**/v1/agents"):
            await user.page.route(address, refuse)
        await user.open(f"runs/{run['id']}?tab=audit")
        await expect(user.page.get_by_role("alert")).to_contain_text("overloaded")
        await user.page.unroute_all()
        await user.button("Try again").click()
        await expect(user.page.get_by_role("tabpanel")).to_contain_text("clerk wants to run refund")
        await expect(user.page.get_by_role("alert")).to_have_count(0)
