"""Users of the console: a Chromium page each, which must show no error and send nothing elsewhere."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    Response,
    async_playwright,
    expect,
)

from tests.support.documents import ROOT
from tests.support.servers import Server
from tests.system.programs import program

FAILURES = ROOT / "build" / "console-failures"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
TIMEOUT_MILLISECONDS = 60_000
"""Until what a test waits for counts as missing, on a busy machine too."""
TEST_SECONDS = 600
"""Until a test counts as stuck. It waits for several things, each within its own time."""
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
_OF_RESPONSES = "Failed to load resource"

expect.set_options(timeout=TIMEOUT_MILLISECONDS)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's Chromium, which reaches no host but this machine."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program("chromium"), args=_FLAGS, timeout=TIMEOUT_MILLISECONDS
        )
        try:
            yield browser
        finally:
            await browser.close()


class User:
    """One user in a browser profile of their own."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.complaints: list[str] = []
        self.expected_statuses: set[int] = set()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        page.on("response", self._on_response)
        page.on("request", self._on_request)

    async def open(self, path: str) -> None:
        """Open a page of the console, and wait until it has its data."""
        await self.page.goto(f"{self.base}/console/{path}")
        await self.ready()

    async def ready(self) -> None:
        await self.page.wait_for_selector("body[data-ready]", timeout=TIMEOUT_MILLISECONDS)

    async def loaded(self) -> None:
        """Wait until no part of the page waits for its data."""
        await expect(self.page.locator(".skeleton")).to_have_count(0)

    async def sign_in(self, key: str) -> None:
        # The page asks whether the browser has a session already.
        expected, self.expected_statuses = self.expected_statuses, {401}
        await self.page.goto(f"{self.base}/console/login")
        await self.page.get_by_label("API key").fill(key)
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.wait_for_url("**/console/inbox")
        await self.ready()
        self.expected_statuses = expected

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    async def press(self, key: str) -> None:
        await self.page.keyboard.press(key)

    async def is_at(self, address: re.Pattern[str]) -> None:
        """Wait for an address that the page sets without loading."""
        await expect(self.page).to_have_url(address)

    async def sees(self, text: str) -> None:
        await expect(self.page.get_by_text(text).first).to_be_visible()

    async def stored(self) -> dict[str, Any]:
        """What scripts of the page can read: storages and cookies."""
        found: dict[str, Any] = await self.page.evaluate(
            "() => ({local: {...localStorage}, session: {...sessionStorage}, cookie: document.cookie})"
        )
        return found

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_OF_RESPONSES):
            self.complaints.append(f"console: {message.text}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected_statuses:
            self.complaints.append(f"{response.status} {response.url}")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(
            self.base
        ).netloc and not request.url.startswith(("blob:", "data:")):
            self.complaints.append(f"request to {request.url}")


@asynccontextmanager
async def using(
    browser: Browser, base: str, name: str = "user", *, key: str | None = None, **options: Any
) -> AsyncIterator[User]:
    """A user with an empty profile. If the test fails, it leaves a screenshot, a trace and the server's log."""
    context = await browser.new_context(
        viewport=options.pop("viewport", WIDE),
        timezone_id="UTC",
        reduced_motion="reduce",
        **options,
    )
    context.set_default_timeout(TIMEOUT_MILLISECONDS)
    await context.tracing.start()
    user = User(await context.new_page(), base)
    try:
        if key is not None:
            await user.sign_in(key)
        yield user
        assert user.complaints == [], user.complaints
    except BaseException as error:
        error.add_note(f"The page of {name}: {user.complaints}")
        await _leave_evidence(user, name)
        raise
    finally:
        await context.close()


async def _leave_evidence(user: User, name: str) -> None:
    """What the page showed, did and asked for, and what its server has logged."""
    FAILURES.mkdir(parents=True, exist_ok=True)
    if (server := Server.by_base.get(user.base)) is not None:
        (FAILURES / f"{name}.log").write_text(server.log)
    # A page that is closed or hangs must not hide why the test has failed.
    with suppress(Error):
        await user.page.screenshot(path=FAILURES / f"{name}.png", full_page=True)
    with suppress(Error):
        await user.page.context.tracing.stop(path=FAILURES / f"{name}.zip")
