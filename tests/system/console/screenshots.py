"""`make screenshots`: pictures of the console for the documents, from the demo agent, light and dark.

It starts a server with the demo, makes a run that waits, one that a person approved and some that are done, and takes
pictures of the inbox, a run's conversation and timeline, the agents and the system.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.async_api import Browser

from app.embedded_postgres.server import EmbeddedPostgres
from tests.support.console import built_console
from tests.support.documents import ROOT
from tests.support.servers import serving
from tests.support.streams import Client
from tests.system.console.browser import WIDE, User, chromium, using

FOLDER = ROOT / "docs" / "images"
PHONE = {"width": 360, "height": 740}
REFUND = "Please refund 80 for order A-7"
SMALL_REFUND = "Please refund 20 for order A-7"


async def main(folder: Path, *, with_phone: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        embedded = await asyncio.to_thread(EmbeddedPostgres.start, Path(place) / "data")
        try:
            async with (
                serving(embedded.url, migrate=1) as server,
                server.client() as client,
                chromium() as browser,
            ):
                pages = await _prepare(client)
                looks: dict[str, dict[str, Any]] = {
                    "light": {"color_scheme": "light"},
                    "dark": {"color_scheme": "dark"},
                }
                if with_phone:
                    looks["phone"] = {"color_scheme": "light", "viewport": PHONE, "has_touch": True}
                for look, options in looks.items():
                    await _take(browser, server.base, folder, look, pages, options)
        finally:
            await asyncio.to_thread(embedded.stop)


async def _prepare(client: Client) -> dict[str, str]:
    """Runs to look at, and the address of each page."""
    for prompt in ("Hello, what can you do?", SMALL_REFUND):
        await client.ended((await client.start("demo", prompt))["id"])
    approved = await client.settled((await client.start("demo", REFUND))["id"])
    body = {
        "decisions": [
            {
                "ticket_id": approved["waiting"]["tickets"][0]["id"],
                "action": "approve",
                "reason": "The lamp was broken.",
            }
        ]
    }
    await client.post(f"/v1/runs/{approved['id']}/decisions", body)
    await client.ended(approved["id"])
    waiting = await client.settled(
        (await client.start("demo", "Please refund 120 for order A-8"))["id"]
    )
    await client.settled((await client.start("demo", "Please delete /tmp/old-report.txt"))["id"])
    ticket = waiting["waiting"]["tickets"][0]["id"]
    return {
        "inbox": f"tickets/{ticket}",
        "run": f"runs/{approved['id']}",
        "timeline": f"runs/{approved['id']}?tab=timeline",
        "agents": "agents/demo",
    }


async def _take(
    browser: Browser,
    base: str,
    folder: Path,
    look: str,
    pages: dict[str, str],
    options: dict[str, Any],
) -> None:
    async with using(browser, base, look, **{"viewport": WIDE, **options}) as user:
        for name, path in pages.items():
            await _open(user, path)
            await user.page.screenshot(path=folder / f"console-{name}-{look}.png")


async def _open(user: User, path: str) -> None:
    await user.open(path)
    # The last request of the page: what is drawn after it is the picture.
    await user.page.wait_for_function("() => !document.querySelector('.skeleton')")


if __name__ == "__main__":
    chosen = [Path(one) for one in sys.argv[1:] if not one.startswith("--")]
    folder = chosen[0] if chosen else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    built_console()
    asyncio.run(main(folder, with_phone="--phone" in sys.argv))
