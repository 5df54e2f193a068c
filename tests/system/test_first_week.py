"""A team's own web page in a real browser: it follows a run over two kills of the server, and approves its call."""

from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.databases import Databases
from tests.support.event_order import check_run
from tests.support.shop import PROMPTS, Shop, killed
from tests.support.streams import Event, types_of
from tests.system.browsers import PAGES, browsing, page_reports
from tests.system.nginx import Nginx, proxying

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MORE = """
        location = /first_week.html {{ root {pages}; }}
        location = /report {{ proxy_pass http://127.0.0.1:{port}; }}
        location = /killed {{ proxy_pass http://127.0.0.1:{port}; }}
"""


def is_question(event: Event) -> bool:
    """Whether the event opens a ticket that a person answers."""
    return bool(event["event_type"] == "ticket_opened" and event["ticket"]["kind"] == "approval")


def is_text(event: Event) -> bool:
    return bool(event["event_type"] == "text_delta")


@PROMPTS
async def test_by_a_web_page_of_another_origin(
    postgres: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prompt: str,
    effects: dict[str, int],
) -> None:
    """The server is killed while the call waits, and again while the model answers."""
    monkeypatch.setenv("SHOP_LOG", str(tmp_path / "shop.log"))
    async with postgres.fresh() as url, page_reports() as page:
        nginx = Nginx(tmp_path / "nginx", [9], more=MORE.format(pages=PAGES, port=page.port))
        shop = Shop(url, tmp_path / "shop.log", nginx.base)
        query = urlencode({"base": shop.base, "prompt": prompt})
        async with shop.serving() as first, proxying(nginx):
            async with browsing(f"{nginx.base}/first_week.html?{query}", tmp_path / "profile"):
                await page.has_reported_one(is_question)
                await killed(first)
                page.server_was_killed.set()
                async with shop.serving() as second:
                    await page.has_reported_one(is_text)
                    await killed(second)
                async with shop.serving():
                    await page.was_closed()
    assert "error" not in page.shown
    assert "Refunded 80.0 for order A-7." in page.shown["answer"]
    assert page.times_opened >= 3
    check_run(page.events)
    assert types_of(page.events)[-1] == "run_finish"
    assert shop.effects() == effects
