"""A decision is about what was shown, is sent once, and its refusals are shown in words."""

import asyncio
import json
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.support.servers import Server
from tests.support.streams import Client
from tests.system.console.browser import TEST_SECONDS, User, using

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]

TRIES = 4
"""How often the page sends a decision to a server that is busy."""


async def opened(client: Client, **arguments: Any) -> tuple[dict[str, Any], str]:
    """A run that waits for a refund, and the id of its ticket."""
    prompt = f"CALL refund {json.dumps({'number': 'D-1', 'amount': 80, **arguments})}"
    run = await client.settled((await client.start("clerk", prompt))["id"])
    return run, str(run["waiting"]["tickets"][0]["id"])


async def approve(user: User) -> None:
    await user.button("Approve").click()
    await user.button("Approve and run refund").click()


def sent_by(page: Page) -> list[dict[str, Any]]:
    """The decisions that the page sends from now on."""
    found: list[dict[str, Any]] = []
    page.on(
        "request",
        lambda request: (
            found.extend(json.loads(request.post_data or "{}")["decisions"])
            if request.url.endswith("/decisions")
            else None
        ),
    )
    return found


async def test_large_arguments_are_shown_whole_before_they_can_be_approved(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "large", key="ann") as ann, team.client("ann") as client:
        lines = [f"{number}: {'x' * 90}" for number in range(300)]
        run, ticket = await opened(client, lines=lines)
        await ann.open(f"tickets/{ticket}")
        await ann.sees("Show all arguments first.")
        await expect(ann.button("Approve")).to_be_disabled()
        await expect(ann.button("Edit")).to_be_disabled()
        await expect(ann.button("Reject")).to_be_enabled()
        await ann.button("Show all of them").click()
        await expect(ann.page.locator(".arguments")).to_contain_text(lines[-1])
        await approve(ann)
        assert "refunded 80 for D-1" in (await client.ended(run["id"]))["final_output"]


async def test_hidden_characters_of_arguments_are_spelled_out(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "hidden", key="ann") as ann, team.client("ann") as client:
        _, ticket = await opened(client, number="A-17\u202e71-B\u200b")
        await ann.open(f"tickets/{ticket}")
        await expect(ann.page.locator(".arguments")).to_contain_text("A-17⟨U+202E⟩71-B⟨U+200B⟩")
        row = ann.page.locator(f"[data-ticket='{ticket}']")
        await expect(row).to_contain_text("A-17⟨U+202E⟩71-B⟨U+200B⟩")


async def test_a_call_that_differs_from_what_was_shown_is_not_approved(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "differs", key="ann") as ann, team.client("ann") as client:
        run, ticket = await opened(client)
        shown = await client.get(f"/v1/tickets/{ticket}")

        is_read_again = asyncio.Event()

        async def of_another_call(route: Route) -> None:
            await route.fulfill(json={**shown, "args_digest": "sha256:" + "0" * 64})

        async def delayed(route: Route) -> None:
            await is_read_again.wait()
            await route.continue_()

        await ann.page.route(f"**/v1/tickets/{ticket}", of_another_call)
        await ann.open(f"tickets/{ticket}")
        await ann.page.unroute_all()
        await ann.page.route(f"**/v1/tickets/{ticket}", delayed)
        ann.expected_statuses = {412}
        await approve(ann)
        await expect(ann.button("Approve")).to_have_count(0)
        is_read_again.set()
        await ann.sees("The call has changed since you read it")
        assert (await client.run(run["id"]))["status"] == "waiting"
        await approve(ann)
        assert (await client.ended(run["id"]))["outcome"] == "succeeded"


async def test_a_decision_that_a_busy_server_refuses_is_sent_again_with_its_id(
    team: Server, browser: Browser
) -> None:
    async def busy(route: Route) -> None:
        problem = {"code": "overloaded", "detail": "Try again.", "trace_id": "t", "status": 503}
        await route.fulfill(status=503, json=problem)

    async with using(browser, team.base, "busy", key="ann") as ann, team.client("ann") as client:
        run, ticket = await opened(client)
        await ann.open(f"tickets/{ticket}")
        decisions = sent_by(ann.page)
        ann.expected_statuses = {503}
        await ann.page.route("**/decisions", busy)
        await approve(ann)
        await ann.sees("Not sent. Try again.")
        assert len(decisions) == TRIES
        await ann.page.unroute_all()
        await ann.button("Approve and run refund").click()
        assert (await client.ended(run["id"]))["outcome"] == "succeeded"
        assert len({each["decision_id"] for each in decisions}) == 1
        assert {each["args_digest"] for each in decisions} == {
            (await client.get(f"/v1/tickets/{ticket}"))["args_digest"]
        }


async def test_a_decision_that_comes_too_late_says_so_and_leaves_no_button(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "late", key="ann") as ann, team.client("ben") as ben:
        run, ticket = await opened(ben)

        async def after_the_cancel(route: Route) -> None:
            await ben.post(f"/v1/runs/{run['id']}/cancel", {})
            await ben.ended(run["id"])
            await route.continue_()

        await ann.open(f"tickets/{ticket}")
        ann.expected_statuses = {410}
        await ann.page.route("**/decisions", after_the_cancel)
        await approve(ann)
        card = ann.page.locator(".card")
        await expect(card).to_contain_text("void")
        await expect(ann.page.locator(".decide")).to_have_count(0)


async def test_a_remembered_approval_is_listed_with_its_agent_and_revoked(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "rule", key="ann") as ann, team.client("ann") as client:
        run, ticket = await opened(client)
        await ann.open(f"tickets/{ticket}")
        await ann.button("Approve").click()
        await ann.page.get_by_label("Applies to").select_option("thread")
        await ann.button("Approve and run refund").click()
        await client.ended(run["id"])
        await ann.open("agents/clerk")
        rule = ann.page.locator(".rule").filter(has_text="refund").filter(has_text="ann")
        await expect(rule).to_contain_text("allow")
        await rule.get_by_role("button", name="Revoke").click()
        await rule.get_by_role("button", name="Revoke: press again").click()
        await expect(rule).to_have_count(0)
        rules = (await client.get("/v1/rules", agent_id="clerk"))["items"]
        assert all(each["revoked_at"] is not None for each in rules)
