"""The first minutes with a server and the demo agent: from its address to an approved call, with the mouse alone."""

import re

import pytest
from playwright.async_api import Browser, Route, expect

from tests.support.servers import serving
from tests.system.console.browser import TEST_SECONDS, using

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]


async def test_the_first_run_is_started_and_approved_with_clicks(
    shared_database_url: str, browser: Browser
) -> None:
    async with serving(shared_database_url, pool_timeout=60.0) as server, server.client() as client:
        await server.printed(re.compile(rf"console {re.escape(server.base)}/console/"))
        async with using(browser, server.base, "first-minutes") as user:
            await user.page.goto(f"{server.base}/")
            await user.page.wait_for_url("**/console/inbox")
            await user.page.get_by_role("link", name="Start a run").first.click()
            await user.page.wait_for_url("**/console/start")
            await user.ready()
            await user.button("refund 80 for order A-7").click()
            await user.button("Start").click()
            await user.sees("demo wants to run refund")
            await user.button("Approve").click()
            await user.button("Approve and run refund").click()
            await expect(user.page.locator(".run-head")).to_contain_text("succeeded")
            found = re.search(r"/runs/([0-9a-f-]+)", user.page.url)
            assert found is not None
            run = await client.ended(found[1])
            assert "Refunded 80" in str(await client.get(f"/v1/runs/{run['id']}/snapshot"))


async def test_a_page_whose_files_are_gone_asks_for_a_reload(
    shared_database_url: str, browser: Browser
) -> None:
    """As while servers are updated, and another one of them has the page's files."""
    async with serving(shared_database_url, pool_timeout=60.0) as server:
        async with using(browser, server.base, "gone") as user:
            user.expected_statuses = {404}
            await user.page.route("**/console/assets/*.js", gone)
            await user.page.goto(f"{server.base}/console/runs")
            await user.sees("Perhaps the server was updated: reload it.")
            await user.page.unroute_all()
            await user.page.reload()
            await user.ready()


async def gone(route: Route) -> None:
    await route.fulfill(status=404)


async def test_a_start_that_is_refused_can_be_corrected(
    shared_database_url: str, browser: Browser
) -> None:
    async with serving(shared_database_url, max_message_bytes=200, pool_timeout=60.0) as server:
        async with using(browser, server.base, "refused-start") as user:
            await user.open("start")
            await user.page.get_by_label("Message").fill("x" * 300)
            user.expected_statuses = {413}
            await user.press("Control+Enter")
            await expect(user.page.get_by_role("alert")).to_contain_text("message_too_large")
            await user.page.get_by_label("Message").fill("Hello")
            await user.press("Control+Enter")
            await user.page.wait_for_url("**/console/runs/*")
            await user.sees("succeeded")
