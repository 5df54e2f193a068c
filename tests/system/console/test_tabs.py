"""Many tabs of one browser, reloads at any moment, several tickets at once, and tickets of children."""

import json
import random
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.support.conditions import eventually
from tests.support.servers import Server
from tests.support.streams import Client
from tests.system.console.browser import TEST_SECONDS, User, using

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]

TABS = 7
FRAMES = """count => new Promise(resolve => {
    const draw = () => (count-- > 0 ? requestAnimationFrame(draw) : resolve());
    draw();
})"""
"""Waits until the page was drawn some times."""
HIDE = """() => {
    window.told = [];
    const Real = window.Notification;
    window.Notification = class { constructor(title) { window.told.push(title); } close() {} };
    window.Notification.permission = Real.permission;
    Object.defineProperty(document, 'hidden', { value: true });
}"""
"""A headless browser shows no notification, so the test counts those that the page makes."""


def refund(number: str) -> str:
    return f"CALL refund {json.dumps({'number': number, 'amount': 80})}"


async def waiting(client: Client, agent: str, prompt: str) -> dict[str, Any]:
    return await client.settled((await client.start(agent, prompt))["id"])


async def another_tab(user: User, path: str) -> User:
    """Another page of the same browser profile. What it complains of, the user complains of."""
    tab = User(await user.page.context.new_page(), user.base)
    tab.complaints = user.complaints
    await tab.open(path)
    return tab


async def test_ten_reloads_at_any_moment_change_nothing(team: Server, browser: Browser) -> None:
    said = " ".join(f"word{number}" for number in range(120))
    async with team.client("ann") as client, using(browser, team.base, "reload", key="ann") as user:
        run = await client.start("talker", said)
        await user.open(f"runs/{run['id']}")
        chance = random.Random(7)
        for _ in range(10):
            await user.page.evaluate(FRAMES, chance.randrange(20))
            await user.page.reload()
        await user.ready()
        await expect(user.page.locator(".run-head")).to_contain_text("succeeded")
        ended = await client.ended(run["id"])
        fresh = await another_tab(user, f"runs/{run['id']}")
        await expect(fresh.page.get_by_role("log")).to_contain_text("That is all I have to say.")
        expected = await fresh.page.get_by_role("log").inner_text()
        await expect(user.page.get_by_role("log")).to_have_text(
            await fresh.page.get_by_role("log").text_content() or ""
        )
        assert " ".join(ended["final_output"].split()) in " ".join(expected.split())


async def test_seven_tabs_share_a_stream_and_another_one_leads_when_the_leader_closes(
    team: Server, browser: Browser
) -> None:
    async with (
        team.client("carol") as client,
        using(browser, team.base, "tabs", key="carol") as user,
    ):
        tabs = [user, *[await another_tab(user, "inbox?agent=sharer") for _ in range(TABS - 1)]]
        await user.open("inbox?agent=sharer")
        for number in range(2):
            run = await waiting(client, "sharer", refund(f"TAB-{number}"))
            ticket = run["waiting"]["tickets"][0]["id"]
            for tab in tabs:
                await expect(shown(tab, ticket)).to_be_visible()
            await one_leads(tabs)
            await client.http.post(f"/v1/runs/{run['id']}/cancel", json={})
            for tab in tabs:
                await expect(shown(tab, ticket)).to_have_count(0)
            if number == 0:
                await tabs.pop(0).page.close()
        for tab in tabs:
            await tab.page.close()


def shown(tab: User, ticket: str) -> Locator:
    """The open ticket. A tab shows it as new, or in the list if it has read that after a change of the leader."""
    row = tab.page.locator(f"[data-ticket='{ticket}']:not(.over)")
    return tab.page.get_by_role("button", name="1 new").or_(row)


async def test_without_web_locks_pages_ask_instead_of_holding_a_stream(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "ask", key="ann") as user:
        run = await waiting(client, "poller", refund("ASK"))
        await user.page.add_init_script("delete Navigator.prototype.locks")
        streams: list[str] = []
        user.page.on(
            "request",
            lambda request: (
                streams.append(request.url)
                if request.headers.get("accept") == "text/event-stream"
                else None
            ),
        )
        await user.open("inbox?agent=poller")
        await waiting(client, "poller", refund("ASK-2"))
        await expect(user.button("1 new")).to_be_visible()
        await user.open(f"runs/{run['id']}")
        await user.sees("poller wants to run refund")
        await client.decide(run, "approve")
        await expect(user.page.locator(".run-head")).to_contain_text("succeeded")
        assert streams == []


async def one_leads(tabs: list[User]) -> None:
    """Wait until one tab holds the lock of the inbox, and all others wait for it."""

    async def found() -> bool:
        locks = await tabs[-1].page.evaluate("async () => (await navigator.locks.query())")
        counts = [
            sum(one["name"].startswith("holdfast-inbox") for one in locks[kind])
            for kind in ("held", "pending")
        ]
        return counts == [1, len(tabs) - 1]

    await eventually(found)


async def test_a_childs_ticket_is_decided_at_the_parent_whose_tree_and_timeline_show_it(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "child", key="ann") as user:
        prompt = f"CALL agent_run_clerk {json.dumps({'prompt': refund('CHILD')})}"
        parent = await client.start("chief", prompt)
        await user.open(f"runs/{parent['id']}")
        await user.sees("clerk wants to run refund")
        explained = user.page.locator(".explain")
        await expect(explained).to_contain_text("1 of whose tickets is open")
        await expect(explained).not_to_contain_text("/v1/")
        await user.press("3")
        tree = user.page.get_by_role("tabpanel").locator("tbody tr")
        await expect(tree).to_have_count(2)
        await expect(tree.nth(0)).to_contain_text("1 below")
        await expect(tree.nth(1)).to_contain_text("needs a person")
        await expect(tree.nth(1).get_by_role("link", name="1", exact=True)).to_be_visible()
        await user.press("1")
        await expect(user.page.get_by_role("button", name="Approve")).to_be_enabled()
        await user.press("a")
        await user.sees("Runs refund with exactly these arguments.")
        await user.press("Control+Enter")
        await expect(user.page.locator(".run-head")).to_contain_text("succeeded")
        assert "refunded 80 for CHILD" in (await client.ended(parent["id"]))["final_output"]
        await user.press("3")
        await expect(tree.filter(has_text="succeeded")).to_have_count(2)
        await user.press("2")
        await expect(user.page.locator(".span.tool").first).to_contain_text("agent_run_clerk")
        await user.button("Table").click()
        await expect(user.page.locator("tbody")).to_contain_text("waits for agents")


async def test_several_tickets_are_approved_at_once_after_all_were_shown(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "bulk", key="ann") as user:
        runs = [await waiting(client, "sharer", refund(f"BULK-{number}")) for number in range(3)]
        await user.open("inbox?agent=sharer")
        await user.press("j")
        await user.press("x")
        await user.button("All of refund").click()
        await user.sees("3 selected")
        await user.button("Approve …").click()
        dialog = user.page.get_by_role("dialog")
        for number in range(3):
            await expect(dialog).to_contain_text(f"BULK-{number}")
        other = runs[1]["waiting"]["tickets"][0]["id"]
        body = {"decisions": [{"ticket_id": other, "action": "reject"}]}
        await client.post(f"/v1/runs/{runs[1]['id']}/decisions", body)
        await user.button("Approve all 3").click()
        await expect(dialog).to_contain_text("2 approved, 1 not")
        await expect(dialog).to_contain_text("ann was faster: reject")
        await user.button("Done").click()
        outputs = [(await client.ended(run["id"]))["final_output"] for run in runs]
        assert ["refunded" in text for text in outputs] == [True, False, True]


async def test_an_id_is_opened_and_a_hidden_page_tells_of_a_new_ticket(
    team: Server, browser: Browser
) -> None:
    async with team.client("ann") as client, using(browser, team.base, "open", key="ann") as user:
        run = await waiting(client, "sharer", refund("OPEN"))
        await user.press("Control+k")
        await user.page.get_by_label("Id of a run").fill(f"see {run['id']}, please")
        user.expected_statuses = {404}
        await user.press("Enter")
        await user.page.wait_for_url(f"**/runs/{run['id']}")
        await user.page.context.grant_permissions(["notifications"])
        await user.open("inbox?agent=sharer")
        await user.press("?")
        notify = user.page.get_by_label("Notify me of new tickets")
        await notify.click()
        await expect(notify).to_be_checked()
        await user.press("Escape")
        await user.page.evaluate(HIDE)
        await waiting(client, "sharer", refund("TOLD"))

        async def told() -> bool:
            return bool(await user.page.evaluate("() => window.told.length === 1"))

        await eventually(told)
        await expect(user.page).to_have_title("(2) Inbox · Holdfast")
