"""Tickets are decided in the browser: approved, edited, by several people, and at the same time."""

import asyncio
import json
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.servers import Server, serving
from tests.support.streams import Client
from tests.system.console.browser import TEST_SECONDS, User, using
from tests.system.console.conftest import STEADY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]


def refund(number: str = "A-17", amount: float = 80) -> str:
    return f"CALL refund {json.dumps({'number': number, 'amount': amount})}"


async def opened(client: Client, agent: str, prompt: str) -> tuple[str, str]:
    """Start a run and wait for its ticket: the ids of both."""
    run = await client.settled((await client.start(agent, prompt))["id"])
    return run["id"], run["waiting"]["tickets"][0]["id"]


async def test_a_call_is_approved_by_keys_and_the_audit_names_the_person(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "approve", key="ann") as ann, team.client("ann") as client:
        await ann.open("start")
        await ann.page.get_by_label("Agent").select_option("clerk")
        await ann.page.get_by_label("Message").fill(refund())
        await ann.press("Control+Enter")
        await ann.page.wait_for_url("**/console/runs/*")
        await ann.sees("clerk wants to run refund")
        await ann.sees("unsafe")
        await ann.press("a")
        await ann.sees("Runs refund with exactly these arguments.")
        await ann.press("Control+Enter")
        await ann.sees("succeeded")
        await ann.page.get_by_role("tab", name="Audit").click()
        await expect(ann.page.get_by_role("tabpanel")).to_contain_text("ann approved")
        run_id = ann.page.url.partition("/runs/")[2].partition("?")[0]
        run = await client.ended(run_id)
        assert "refunded 80 for A-17 now" in run["final_output"]


async def test_edited_arguments_are_shown_as_a_diff_and_reach_the_tool(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "edit", key="ann") as ann, team.client("ann") as client:
        run_id, ticket = await opened(client, "clerk", refund())
        await ann.open(f"tickets/{ticket}")
        await ann.press("e")
        send = ann.page.locator("button.send")
        await expect(send).to_be_disabled()
        amount = ann.page.get_by_label("amount")
        await amount.fill("4o")
        await ann.sees("Enter a number.")
        await expect(send).to_be_disabled()
        await amount.fill("40")
        await expect(ann.page.locator(".diff .old")).to_contain_text("80")
        await expect(ann.page.locator(".diff .new")).to_contain_text("40")
        await ann.button("Add lines").click()
        await ann.button("Add one").click()
        await ann.page.get_by_label("1", exact=True).fill("lamp")
        await expect(send).to_contain_text("Run with 2 changes")
        await send.click()
        await ann.sees("approved with changes")
        run = await client.ended(run_id)
        assert "refunded 40 for A-17 now" in run["final_output"]


async def test_arguments_that_the_schema_refuses_can_be_corrected(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "schema", key="ann") as ann, team.client("ann") as client:
        run_id, ticket = await opened(client, "clerk", refund())
        await ann.open(f"tickets/{ticket}")
        await ann.press("e")
        form = ann.page.get_by_role("form", name="Edit")
        await form.get_by_role("button", name="JSON").click()
        text = form.get_by_role("textbox", name="JSON")
        await text.fill('{"number": "A-17", "amount": ')
        await ann.sees("This isn’t JSON")
        await text.fill('{"number": "A-17", "amount": "many"}')
        ann.expected_statuses = {422}
        await ann.press("Control+Enter")
        await expect(form.get_by_role("alert")).to_contain_text("amount")
        await text.fill('{"number": "A-17", "amount": 7}')
        await ann.press("Control+Enter")
        await ann.sees("approved with changes")
        assert "refunded 7 for A-17" in (await client.ended(run_id))["final_output"]


async def test_of_two_people_who_decide_at_once_one_wins_and_both_see_who(
    team: Server, browser: Browser
) -> None:
    async with (
        using(browser, team.base, "first", key="ann") as ann,
        using(browser, team.base, "second", key="ben") as ben,
        team.client("ann") as client,
    ):
        run_id, ticket = await opened(client, "clerk", refund())
        for user, key in ((ann, "a"), (ben, "r")):
            user.expected_statuses = {409}
            await user.open(f"tickets/{ticket}")
            await user.press(key)
            await expect(user.page.locator("button.send")).to_be_visible()
        await asyncio.gather(ann.press("Control+Enter"), ben.press("Control+Enter"))
        run = await client.ended(run_id)
        winner = "ann" if "refunded" in run["final_output"] else "ben"
        word = {"ann": "approved", "ben": "rejected"}[winner]
        for user in (ann, ben):
            await expect(user.page.locator(".card")).to_contain_text(f"{word}by {winner}")
            await expect(user.page.locator(".decide")).to_have_count(0)


async def test_a_quorum_needs_two_people_and_the_starter_is_none_of_them(
    team: Server, browser: Browser
) -> None:
    async with (
        using(browser, team.base, "ann", key="ann") as ann,
        using(browser, team.base, "ben", key="ben") as ben,
        using(browser, team.base, "carol", key="carol") as carol,
        team.client("carol") as client,
    ):
        run_id, ticket = await opened(client, "board", refund())
        for user in (ann, ben, carol):
            await user.open(f"tickets/{ticket}")
        await carol.sees("You can’t decide this: the person who started the run can't answer it")
        await expect(carol.button("Approve")).to_be_disabled()
        await decide(ann, "a")
        await ann.sees("Your vote counts. 1 more person has to approve.")
        await ben.sees("ann said yes")
        await decide(ben, "a")
        for user in (ann, ben, carol):
            await user.sees("approved")
            await expect(user.page.locator(".decide")).to_have_count(0)
        assert (await client.ended(run_id))["outcome"] == "succeeded"


async def test_rows_show_votes_and_who_may_decide_before_and_after_they_change(
    team: Server, browser: Browser
) -> None:
    async with (
        using(browser, team.base, "rows", key="ann") as ann,
        using(browser, team.base, "starter", key="carol") as carol,
        team.client("carol") as client,
        team.client("ben") as ben,
    ):
        _, known = await opened(client, "board", refund("VOTES"))
        for user in (ann, carol):
            await user.open("inbox?agent=board")
            await expect(user.page.locator(".live")).to_have_text("live")
        row = ann.page.locator(f"[data-ticket='{known}']")
        await expect(row).to_contain_text("0/2 votes")
        await expect(row).not_to_contain_text("not by you")
        await expect(carol.page.locator(f"[data-ticket='{known}']")).to_contain_text("not by you")
        await ben.decide(await ben.run(await run_of(ben, known)), "approve")
        await expect(row).to_contain_text("1/2 votes")
        _, later = await opened(client, "board", refund("LATER"))
        # What an event tells of a ticket lacks who may decide: the list is read for it.
        await carol.button("1 new").click()
        await expect(carol.page.locator(f"[data-ticket='{later}']")).to_contain_text("not by you")
        await expect(carol.page.locator("[data-ticket]").first).to_contain_text("LATER")
        await ann.page.reload()
        await ann.ready()
        await expect(row).to_contain_text("1/2 votes")


async def run_of(client: Client, ticket: str) -> str:
    return str((await client.get(f"/v1/tickets/{ticket}"))["run_id"])


async def decide(user: User, key: str) -> None:
    await user.press(key)
    await expect(user.page.locator("button.send")).to_be_enabled()
    await user.press("Control+Enter")


async def test_many_new_tickets_move_no_row_and_no_typed_text(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "many", key="ann") as ann, team.client("ann") as client:
        _, ticket = await opened(client, "clerk", refund("KEEP"))
        await ann.open(f"tickets/{ticket}")
        await expect(ann.page.locator(".live")).to_have_text("live")
        await ann.press("r")
        reason = ann.page.get_by_label("Reason, for the model (optional)")
        await reason.type("half a rea")
        row = ann.page.locator(f"[data-ticket='{ticket}']")
        await row.hover()
        before = await row.bounding_box()
        started = [client.start("clerk", refund(f"N-{at}")) for at in range(50)]
        for run in await asyncio.gather(*started):
            await client.settled(run["id"])
        newer = ann.page.get_by_role("button", name=" new")
        await expect(newer).to_have_text("50 new")
        await expect(ann.page.locator("[role=status]").first).to_have_text("50 new tickets")
        assert await reason.input_value() == "half a rea"
        after = await row.bounding_box()
        assert before is not None
        assert after is not None
        assert after["y"] - before["y"] <= 40, "only the line about new tickets has come above it"
        await reason.type("son")
        await newer.click()
        await expect(ann.page.locator("[data-ticket]").first).to_contain_text("N-")
        assert await reason.input_value() == "half a reason"


async def test_questions_are_answered_by_a_form_of_their_schema_and_by_text(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "ask", key="ann") as ann, team.client("ann") as client:
        run_id, ticket = await opened(client, "asker", "CALL fill_in {}")
        await ann.open(f"tickets/{ticket}")
        await ann.press("s")
        await ann.page.get_by_label("city").fill("Oslo")
        await ann.page.get_by_label("floor").fill("3")
        await ann.press("Control+Enter")
        await ann.sees("answered")
        assert "Oslo" in (await client.ended(run_id))["final_output"]
        run_id, ticket = await opened(client, "asker", "CALL ask_freely {}")
        await ann.open(f"tickets/{ticket}")
        await ann.sees("Which colour?")
        await ann.press("s")
        await ann.page.get_by_label("Result", exact=True).fill("blue")
        await ann.press("Control+Enter")
        await ann.sees("answered")
        assert "blue" in (await client.ended(run_id))["final_output"]


async def test_a_run_at_its_limit_is_raised(team: Server, browser: Browser) -> None:
    async with using(browser, team.base, "limit", key="ann") as ann, team.client("ann") as client:
        prompt = 'CALL look_up {"number": "A"} CALL look_up {"number": "B"}'
        started = await client.start("clerk", prompt, limits={"steps": 1}, on_limit="ask")
        run = await client.settled(started["id"])
        await ann.open(f"runs/{run['id']}")
        await ann.sees("clerk has reached a limit")
        await ann.sees("1 of 1")
        await ann.press("e")
        await ann.page.get_by_label("raise_by").fill("5")
        await ann.press("Control+Enter")
        await ann.sees("succeeded")
        assert (await client.ended(run["id"]))["steps"] == 3


async def test_a_key_that_may_only_read_sees_which_scope_it_lacks(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "reader", key="reader") as reader:
        async with team.client("ann") as client:
            _, ticket = await opened(client, "clerk", refund())
        await reader.open(f"tickets/{ticket}")
        await reader.sees("Your key lacks the scope decisions:write")
        for name in ("Approve", "Reject"):
            await expect(reader.button(name)).to_be_disabled()


async def test_a_ticket_of_others_is_not_here(team: Server, browser: Browser) -> None:
    async with using(browser, team.base, "stranger", key="stranger") as stranger:
        async with team.client("ann") as client:
            _, ticket = await opened(client, "clerk", refund())
        stranger.expected_statuses = {404}
        await stranger.open(f"tickets/{ticket}")
        await stranger.sees("Not here, or not yours")
        await stranger.sees("Nothing waits for you")


async def test_an_empty_inbox_shows_the_last_decisions(
    shared_database_url: str, keys_file: Path, browser: Browser
) -> None:
    async with serving(shared_database_url, **STEADY, api_keys_file=keys_file) as server:
        async with server.client("stranger") as client:
            run_id, ticket = await opened(client, "clerk", refund("GONE"))
            await client.decide(await client.run(run_id), "reject", reason="no")
            async with using(browser, server.base, "last", key="stranger") as stranger:
                await stranger.sees("Nothing waits for you")
                decided = stranger.page.get_by_role("region", name="Decided last")
                await expect(decided).to_contain_text("rejected by stranger")
                await decided.locator(f"[data-ticket='{ticket}']").click()
                await expect(stranger.page.locator(".card")).to_contain_text("GONE")
