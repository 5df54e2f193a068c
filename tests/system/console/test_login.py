"""Sign-in with a key: the browser keeps no key, other pages can't use the session, removing the key ends it."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.keys import Holder, write_keys
from tests.support.listeners import listening
from tests.support.ports import free_port
from tests.support.servers import Server, serving
from tests.system.console.browser import TEST_SECONDS, using
from tests.system.console.conftest import STEADY

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]


async def test_signing_in_leads_back_and_leaves_no_key_in_the_browser(
    team: Server, browser: Browser
) -> None:
    async with using(browser, team.base, "sign-in") as user:
        user.expected_statuses = {401}
        await user.page.goto(f"{team.base}/console/start?agent=board")
        await user.page.wait_for_url("**/console/login?next=*")
        await user.page.get_by_label("API key").fill("wrong")
        await user.press("Enter")
        await expect(user.page.get_by_role("alert")).to_contain_text("unknown")
        await user.page.get_by_label("API key").fill("ann")
        await user.press("Enter")
        await user.page.wait_for_url("**/console/start?agent=board")
        await user.sees("ann")
        found = await user.stored()
        assert "ann" not in str(found)
        assert "holdfast-" not in found["cookie"]
        await user.button("Sign out").click()
        await user.page.wait_for_url("**/console/login")
        await user.page.goto(f"{team.base}/console/inbox")
        await user.page.wait_for_url("**/console/login?next=*")


@pytest.mark.parametrize(
    "next", ["https://evil.example", "//evil.example", "/v1/me", "/console/\\evil"]
)
async def test_signing_in_leads_to_no_other_place(
    team: Server, browser: Browser, next: str
) -> None:
    async with using(browser, team.base, "next") as user:
        user.expected_statuses = {401}
        await user.page.goto(f"{team.base}/console/login?next={next}")
        await user.page.get_by_label("API key").fill("ann")
        await user.press("Enter")
        await user.page.wait_for_url(f"{team.base}/console/inbox")


async def test_pages_of_other_ports_and_hosts_cannot_use_the_session(
    team: Server, browser: Browser
) -> None:
    async with listening(_answer_with_page) as other:
        async with using(browser, team.base, "foreign", key="ann") as user:
            user.expected_statuses = {401}
            for host in ("127.0.0.1", "localhost"):
                await user.page.goto(f"http://{host}:{other}/")
                read = """async (base) => {
                    const answers = [];
                    for (const [method, path] of [["GET", "/v1/me"], ["POST", "/v1/runs"]]) {
                        try {
                            const got = await fetch(base + path, {method, credentials: "include", mode: "no-cors"});
                            answers.push(got.type);
                        } catch (error) { answers.push("failed"); }
                    }
                    return answers;
                }"""
                assert set(await user.page.evaluate(read, team.base)) <= {"opaque", "failed"}
            await user.open("inbox")
            await user.sees("Nothing waits for you")
            user.complaints = [
                one for one in user.complaints if str(other) not in one and "CORS" not in one
            ]
    async with team.client("ann") as client:
        assert (await client.get("/v1/runs"))["items"] == []


async def test_removing_a_key_ends_its_sessions_and_asks_to_sign_in(
    shared_database_url: str, browser: Browser, keys_file: Path, tmp_path: Path
) -> None:
    settings = {**STEADY, "port": free_port()}
    async with serving(shared_database_url, **settings, api_keys_file=keys_file) as server:
        async with using(browser, server.base, "removed", key="ann") as user:
            await expect(user.page.locator(".live")).to_have_text("live")
            server.terminate()
            await server.gone()
            fewer = write_keys(tmp_path / "keys.toml", {"ben": Holder("acme")})
            user.expected_statuses = {401, 503}
            async with serving(shared_database_url, **settings, api_keys_file=fewer):
                await user.page.wait_for_url("**/console/login?next=*")
                user.complaints = [one for one in user.complaints if "ERR_" not in one]


async def _answer_with_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A web server of another origin, on another port."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<!doctype html><p>other page")
