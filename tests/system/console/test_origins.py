"""Where things come from: the runs above a ticket, who decided a call, and how a conversation began."""

import json
import re
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.support.conditions import eventually
from tests.support.servers import Server
from tests.support.streams import Client
from tests.system.console.browser import TEST_SECONDS, using

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]


def refund(number: str, amount: int = 80) -> str:
    return f"CALL refund {json.dumps({'number': number, 'amount': amount})}"


async def asked(client: Client, number: str) -> dict[str, Any]:
    return await client.settled((await client.start("clerk", refund(number)))["id"])


async def below_chief(client: Client, number: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run of chief, and the ticket of the run below it."""
    prompt = f"CALL agent_run_clerk {json.dumps({'prompt': refund(number)})}"
    chief = await client.start("chief", prompt)

    async def opened() -> dict[str, Any] | None:
        page = await client.get("/v1/tickets", root_run_id=chief["id"], status="open")
        return page["items"][0] if page["items"] else None

    return chief, await eventually(opened)


async def test_a_ticket_of_a_child_names_the_run_at_the_top(team: Server, browser: Browser) -> None:
    async with team.client("ann") as client, using(browser, team.base, "below", key="ann") as ann:
        chief, ticket = await below_chief(client, "BELOW")
        await ann.open("inbox")
        row = ann.page.locator(f"[data-ticket='{ticket['id']}']")
        await expect(row).to_contain_text("clerk for chief")
        await row.click()
        top = ann.page.locator(".card").get_by_role("link", name="for chief, run")
        await expect(top).to_have_attribute("href", f"/console/runs/{chief['id']}")
        await ann.open("runs?agent=chief")
        below = ann.page.locator(f"[data-run='{chief['id']}']").get_by_role("link", name="1 below")
        await below.click()
        await ann.page.wait_for_url("**/console/runs/*?tab=tree")
        await ann.ready()
        explained = ann.page.locator(".explain").get_by_role("link", name="clerk wants to run")
        await expect(explained).to_have_attribute("href", f"/console/tickets/{ticket['id']}")
        child = ann.page.get_by_role("region", name="Tree of runs").get_by_role("link").nth(1)
        await expect(child).to_have_attribute("href", f"/console/runs/{ticket['run_id']}")
        await child.click()
        parent = ann.page.locator(".run-head").get_by_role("link", name="parent run")
        await expect(parent).to_have_attribute("href", f"/console/runs/{chief['id']}")


async def test_a_decided_ticket_leads_to_the_moment_at_which_the_run_asked(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "moment", key="ann") as ann:
        run = await asked(client, "MOMENT")
        ticket = run["waiting"]["tickets"][0]["id"]
        await client.decide(run, "approve")
        await client.ended(run["id"])
        [opened] = [
            event
            for event in await client.log(f"/v1/runs/{run['id']}")
            if event["event_type"] == "ticket_opened"
        ]
        await ann.open(f"tickets/{ticket}")
        await ann.page.locator(".card header").get_by_role("link", name="run").click()
        await ann.is_at(re.compile(rf"/console/runs/{run['id']}\?at={opened['seq']}$"))
        await ann.sees(f"As it was at event {opened['seq']}")
        conversation = ann.page.get_by_role("log")
        await expect(conversation).not_to_contain_text("refunded 80 for MOMENT")
        await ann.button("Back to now").click()
        await expect(conversation).to_contain_text("refunded 80 for MOMENT")


async def test_a_conversation_says_who_decided_its_calls(team: Server, browser: Browser) -> None:
    async with team.client("ben") as ben, using(browser, team.base, "who", key="ann") as ann:
        run = await asked(ben, "WHO")
        await ann.open(f"runs/{run['id']}")
        await ann.sees("clerk wants to run refund")
        edited = {"number": "WHO", "amount": 7}
        await ben.decide(run, "edit", arguments=edited, reason="too much")
        await expect(ann.page.locator(".run-head")).to_contain_text("succeeded")
        await ann.page.reload()
        await ann.ready()
        mark = ann.page.locator(".call").get_by_text("edited by ben")
        await expect(mark).to_be_visible()
        await expect(mark).to_have_attribute("title", re.compile("too much"))
        await ann.page.locator(".call").get_by_role("button", name="refund").click()
        body = ann.page.locator(".call-body")
        await expect(body).to_contain_text("Arguments after the edit")
        await expect(body).to_contain_text("As the model wanted them")
        await ann.open(f"tickets/{run['waiting']['tickets'][0]['id']}")
        history = ann.page.get_by_role("region", name="History")
        await expect(history.locator(".diff .old")).to_contain_text("80")
        await expect(history.locator(".diff .new")).to_contain_text("7")


async def test_a_conversation_is_begun_on_its_page_and_named_by_its_first_words(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "begin", key="ann") as ann:
        await ann.open("threads")
        await ann.page.get_by_label("Agent").select_option("reporter")
        await ann.page.get_by_label("Write to reporter").fill("Where are the blue lamps?")
        await ann.press("Control+Enter")
        await ann.page.wait_for_url("**/console/threads/*")
        await ann.ready()
        name = "Where are the blue lamps?"
        await expect(ann.page.get_by_role("heading", name=name)).to_be_visible()
        chosen = ann.page.locator(".thread-row[aria-current]")
        await expect(chosen.locator(".name")).to_have_text(name)
        run = await client.start("reporter", "And the green ones?")
        later = ann.page.locator(f"[data-thread='{run['thread_id']}']")
        await ann.button("1 new").click()
        await expect(later.locator(".name")).to_have_text("And the green ones?")
        await expect(ann.page.get_by_role("log")).to_contain_text("blue lamps")
        await client.ended(run["id"])
        first = ann.page.url
        await ann.button("Fork").click()
        await ann.button("Make the copy").click()
        await ann.page.wait_for_url(lambda url: url != first)
        await ann.ready()
        await expect(ann.page.get_by_role("heading", name=name)).to_be_visible()


async def test_requests_without_a_body_are_copied_as_curl(team: Server, browser: Browser) -> None:
    options = {"permissions": ["clipboard-read", "clipboard-write"]}
    async with (
        team.client("ann") as client,
        using(browser, team.base, "curl", key="ann", **options) as ann,
    ):
        run = await asked(client, "CURL")
        await client.post(f"/v1/runs/{run['id']}/pause", {})
        await ann.open(f"runs/{run['id']}")
        await ann.button("Resume").click()
        await ann.button("Copy as curl").click()
        await ann.sees("Copied")
        copied = await ann.page.evaluate("() => navigator.clipboard.readText()")
        assert copied == (
            f"curl -s '{team.base}/v1/runs/{run['id']}/resume' -H 'Authorization: Bearer …' -X POST"
        )
