"""A page of another origin in a real browser: it starts a run, follows it by fetch, and decides."""

import hashlib
import json
import secrets
from pathlib import Path

import pytest

from tests.support.event_order import check_run
from tests.support.servers import serving
from tests.system.browsers import PAGES, Page, browsing, page_reports
from tests.system.nginx import Nginx, proxying

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

PAGE = """
        location = /other_origin.html {{ root {pages}; }}
        location = /report {{ proxy_pass http://127.0.0.1:{port}; }}
"""
SCOPES = ["runs:read", "runs:write", "decisions:write"]


async def shown_by_a_page(
    database_url: str, agents: Path, folder: Path, *, allowed: str, key: str | None
) -> tuple[Page, list[dict[str, object]]]:
    """What a page on its own port reports, and the runs that exist afterwards."""
    async with page_reports() as page:
        more = PAGE.format(pages=PAGES, port=page.port)
        nginx = Nginx(folder / "nginx", [9], more=more)
        settings: dict[str, object] = {"cors_origins": allowed.format(page=nginx.base)}
        if key is not None:
            sha256 = hashlib.sha256(key.encode()).hexdigest()
            entry = {"subject": "ann", "tenant": "default", "scopes": SCOPES, "sha256": sha256}
            settings["api_keys"] = json.dumps([entry])
        async with serving(database_url, agents=agents, **settings) as server, proxying(nginx):
            url = f"{nginx.base}/other_origin.html?base={server.base}&key={key or 'none'}"
            async with browsing(url, folder / "profile"):
                await page.was_closed()
            async with server.client(key) as client:
                return page, (await client.get("/v1/runs"))["items"]


@pytest.mark.parametrize("key", [secrets.token_urlsafe(), None], ids=["key", "keyless"])
async def test_a_page_of_an_allowed_origin_runs_and_decides(
    database_url: str, agents: Path, tmp_path: Path, key: str | None
) -> None:
    page, runs = await shown_by_a_page(database_url, agents, tmp_path, allowed="{page}", key=key)
    assert "error" not in page.shown
    assert page.shown["outcome"] == "succeeded"
    assert page.shown["decided"] == "200"
    assert page.shown["refused"] == "run_not_found"
    assert page.shown["etag"]
    assert len(runs) == 1
    assert page.times_opened == 2
    check_run(page.events)


@pytest.mark.parametrize("key", [secrets.token_urlsafe(), None], ids=["key", "keyless"])
async def test_a_page_of_another_origin_can_do_nothing(
    database_url: str, agents: Path, tmp_path: Path, key: str | None
) -> None:
    page, runs = await shown_by_a_page(
        database_url, agents, tmp_path, allowed="http://localhost:9", key=key
    )
    assert page.shown == {"error": "TypeError: Failed to fetch"}
    assert page.events == []
    assert runs == []
