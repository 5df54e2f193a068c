"""A run's page follows its run: also over cut streams, takeovers and calls of unknown outcome."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.conditions import Effects, eventually
from tests.support.ports import free_port
from tests.support.servers import serving
from tests.support.streams import Client
from tests.system.console.browser import TEST_SECONDS, using
from tests.system.console.conftest import AGENTS, STEADY
from tests.system.console.held_answers import WORDS, held_answers

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]

TAKEN_OVER = {"heartbeat_timeout": 5.0, "pool_timeout": 60.0}
"""Settings of servers that are killed: others take their runs over soon."""
TALKER = """
[models.held]
provider = "openai"
model = "held"
base_url = "{base_url}"
api_key = "unused"
idle_timeout = 600

[agents.talker]
model = "held"
"""


async def test_the_text_equals_the_log_although_servers_die_and_are_replaced(
    shared_database_url: str, browser: Browser, tmp_path: Path
) -> None:
    agents = tmp_path / "agents.toml"
    async with held_answers(10, 20) as provider:
        agents.write_text(TALKER.format(base_url=provider.base_url))
        settings = {**TAKEN_OVER, "agents": agents, "port": free_port()}
        async with serving(shared_database_url, **settings) as first:
            async with first.client() as client:
                run_id = (await client.start("talker", "Talk"))["id"]
            async with using(browser, first.base, "takeover") as user:
                # A server that stops or starts may refuse a request.
                user.expected_statuses = {503}
                await user.open(f"runs/{run_id}")
                streamed = user.page.locator("[data-streaming]")
                await expect(streamed).to_contain_text("word9 word10")
                first.kill()
                await first.gone()
                async with serving(shared_database_url, **settings) as second:
                    await expect(streamed).to_contain_text("word19 word20")
                    second.terminate()
                    await second.gone()
                    async with serving(shared_database_url, **settings) as third:
                        await expect(user.page.locator(".run-head")).to_contain_text("succeeded")
                        async with third.client() as client:
                            run = await client.ended(run_id)
                        answer = user.page.locator(".message.assistant .markdown").last
                        await expect(answer).to_have_text(" ".join(WORDS))
                        assert run["final_output"].split() == list(WORDS)
                user.complaints = [one for one in user.complaints if "ERR_" not in one]


async def test_a_call_of_unknown_outcome_shows_its_evidence_and_takes_a_result(
    shared_database_url: str, browser: Browser, tmp_path: Path
) -> None:
    effects = Effects(tmp_path / "letters")
    settings = {**TAKEN_OVER, "agents": AGENTS, "port": free_port()}
    async with serving(shared_database_url, **settings) as first:
        async with first.client() as client:
            run_id = (await client.start("sender", effects.held("send")))["id"]
            await effects.happened()
            await output_is_stored(client, run_id)
        async with using(browser, first.base, "unknown") as user:
            # A server that stops or starts may refuse a request.
            user.expected_statuses = {503}
            await user.open("inbox")
            await expect(user.page.locator(".live")).to_have_text("live")
            first.kill()
            await first.gone()
            async with serving(shared_database_url, **settings) as second:
                row = user.page.get_by_text("Did send happen?")
                newer = user.page.locator("button.newer")
                await expect(row.or_(newer).first).to_be_visible()
                await user.open("inbox")
                await row.click()
                card = user.page.locator(".card")
                await expect(card).to_contain_text("Did send take effect?")
                await expect(card).to_contain_text(effects.keys[0])
                await expect(card).to_contain_text(f"process {first.pid}")
                await expect(card).to_contain_text("the letter is on its way")
                await expect(user.button("Run it again")).to_be_visible()
                await user.button("It happened: enter the result").click()
                await user.page.get_by_label("Result", exact=True).fill("it was sent")
                await user.press("Control+Enter")
                await expect(card).to_contain_text("answered")
                async with second.client() as client:
                    run = await client.ended(run_id)
                assert "it was sent" in run["final_output"]
                assert len(effects.lines) == 1


async def output_is_stored(client: Client, run_id: str) -> None:
    """Wait until the call's streamed output can't be lost with its process."""

    async def stored() -> bool:
        page = await client.get(f"/v1/runs/{run_id}/events", types="tool_call_stream_delta")
        return bool(page["items"])

    await eventually(stored)


async def test_a_run_that_waits_says_for_what(shared_database_url: str, browser: Browser) -> None:
    async with serving(shared_database_url, **STEADY) as server, server.client() as client:
        started = await client.start("asker", 'CALL wait_for_payment {"invoice": "R-7"}')
        await client.settled(started["id"])
        async with using(browser, server.base, "waits") as user:
            await user.open(f"runs/{started['id']}")
            await user.sees("waiting_for_event")
            await expect(user.page.locator(".run-head")).to_contain_text("waits for a signal")
            body = {"signal_id": "s-7", "name": "payment_settled", "key": "R-7", "payload": 80}
            await client.post("/v1/signals", body)
            await expect(user.page.locator(".run-head")).to_contain_text("succeeded")
            await expect(user.page.get_by_role("log")).to_contain_text("answered: paid 80")
            call = user.page.get_by_role("button", name="wait_for_payment")
            await call.click()
            await expect(user.page.locator(".call-body")).to_contain_text("paid 80")


async def test_hostile_text_is_shown_and_does_nothing(
    shared_database_url: str, browser: Browser
) -> None:
    hostile = (
        "<img src=https://evil.example/x onerror=alert(1)> ![x](https://evil.example/y) "
        "[click](javascript:alert(1)) <script>alert(1)</script> pay\u202eyap"
    )
    async with serving(shared_database_url, **STEADY) as server, server.client() as client:
        started = await client.start("talker", hostile)
        run = await client.ended(started["id"])
        async with using(browser, server.base, "hostile") as user:
            await user.open(f"runs/{run['id']}")
            conversation = user.page.get_by_role("log")
            await expect(conversation).to_contain_text("<script>alert(1)</script>")
            await expect(conversation).to_contain_text("⟨U+202E⟩")
            await expect(conversation.locator("img, script, iframe")).to_have_count(0)
            await expect(conversation.locator("a[href^='javascript']")).to_have_count(0)


async def test_an_unknown_run_is_not_here(shared_database_url: str, browser: Browser) -> None:
    async with serving(shared_database_url, **STEADY) as server:
        async with using(browser, server.base, "no-run") as user:
            user.expected_statuses = {404}
            await user.open("runs/01a1f250-cf97-74d4-99e8-9be6eaf04948")
            await user.sees("Not here, or not yours")
