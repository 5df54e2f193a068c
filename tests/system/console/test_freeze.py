"""A frozen page draws nothing that comes, counts it, and draws it when its user follows again."""

import pytest
from playwright.async_api import Browser, expect

from tests.support.servers import Server
from tests.system.console.browser import TEST_SECONDS, using
from tests.system.console.test_accessibility import check
from tests.system.console.test_inbox import opened, refund

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]


async def test_a_frozen_inbox_counts_what_comes_and_draws_what_its_user_does(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "inbox", key="ann") as user:
        run_id, ticket_id = await opened(client, "sharer", refund("FREEZE-1"))
        await user.open("inbox?agent=sharer&tool=refund")
        row = user.page.locator(".ticket-row").filter(has_text="FREEZE-1")
        await expect(row).to_contain_text("unsafe")
        await user.press("p")
        decision = {"ticket_id": ticket_id, "action": "reject"}
        await client.post(f"/v1/runs/{run_id}/decisions", {"decisions": [decision]})
        await opened(client, "sharer", refund("FREEZE-2"))
        await expect(user.button("Follow (2 new)")).to_be_visible()
        await expect(row).not_to_contain_text("rejected")
        await check(user)
        await user.press("p")
        await expect(row).to_contain_text("rejected by ann")
        await user.button("1 new").click()
        await expect(user.page.locator(".ticket-row").first).to_contain_text("FREEZE-2")
        await user.button("Freeze live changes").click()
        await user.page.get_by_label("Status").select_option("decided")
        await expect(row).to_contain_text("rejected by ann")
        await expect(user.page.locator(".ticket-row").filter(has_text="FREEZE-2")).to_have_count(0)


async def test_frozen_runs_keep_their_rows_and_a_frozen_conversation_its_text(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "runs", key="ann") as user:
        run_id, _ = await opened(client, "sharer", refund("FREEZE-3"))
        await user.open("runs?agent=sharer")
        await user.button("Freeze live changes").click()
        row = user.page.locator(f"[data-run='{run_id}']")
        await client.post(f"/v1/runs/{run_id}/cancel", {"reason": "enough"})
        await expect(user.button("Follow (1 new)")).to_be_visible()
        await expect(row).to_contain_text("needs a person")
        await user.button("Follow").click()
        await expect(row).to_contain_text("cancelled")

        run_id, ticket_id = await opened(client, "sharer", refund("FREEZE-4"))
        await user.open(f"runs/{run_id}")
        await expect(user.page.get_by_text("live", exact=True)).to_be_visible()
        await user.press("p")
        decision = {"ticket_id": ticket_id, "action": "approve"}
        await client.post(f"/v1/runs/{run_id}/decisions", {"decisions": [decision]})
        await client.ended(run_id)
        conversation = user.page.get_by_role("log")
        await expect(user.page.locator(".frozen")).to_contain_text("new")
        await expect(conversation).not_to_contain_text("refund answered")
        await expect(user.page.locator(".run-head")).to_contain_text("needs a person")
        await user.press("p")
        await expect(conversation).to_contain_text("refund answered")
        await expect(user.page.locator(".run-head")).to_contain_text("succeeded")


async def test_tickets_that_expire_first_are_listed_first_and_all_are_counted(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "expiry", key="ann") as user:
        for number, hours in (("SOON", 1), ("LATE", 3)):
            policy = {"expires_in": hours * 3600, "on_expiry": "reject"}
            run = await client.start("expirer", refund(number), ticket_policy=policy)
            await client.settled(run["id"])
        await opened(client, "expirer", refund("NEVER"))
        await user.open("inbox?agent=expirer")
        rows = user.page.locator(".ticket-row")
        await expect(rows).to_contain_text(["NEVER", "LATE", "SOON"])
        await user.page.get_by_label("Order").select_option("Expiring first")
        await expect(rows).to_contain_text(["SOON", "LATE", "NEVER"])
        await user.page.reload()
        await expect(rows).to_contain_text(["SOON", "LATE", "NEVER"])
        await expect(user.page.get_by_role("link", name="Inbox 3 open")).to_be_visible()
        await expect(user.page).to_have_title("(3) Inbox · Holdfast")
