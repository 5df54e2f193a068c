"""The pages that a browser is shown first: they help, need no key, and load nothing from other servers."""

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest

from app.http.start_pages import pages
from tests.support.commands import holdfast
from tests.support.servers import serving

pytestmark = pytest.mark.anyio

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ELSEWHERE = re.compile(r"""(?:src|href)=["'](?:https?:)?//""")


async def test_the_first_page_links_to_what_there_is_and_names_commands(
    database_url: str,
) -> None:
    async with serving(database_url, console=0) as server, server.client() as client:
        page = await client.http.get("/", headers=BROWSER)
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "demo" in page.text
        assert "holdfast decide approve" in page.text
        links = re.findall(r'href="([^"]+)"', page.text)
        assert set(links) == {"docs", "openapi.json", "problems", "health", "metrics"}
        for link in links:
            found = await client.http.get(urljoin(f"{server.base}/", link))
            assert found.status_code == 200, link
        in_terminal = await client.http.get("/")
        assert in_terminal.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert "  holdfast run 'refund 80 for order A-7'\n" in in_terminal.text
        for path in ("/", "/docs", "/docs/swagger-ui.css"):
            assert (await client.http.head(path)).status_code == 200


async def test_the_page_about_the_api_needs_no_other_server(database_url: str) -> None:
    async with serving(database_url, console=0) as server, server.client() as client:
        page = await client.http.get("/docs", headers=BROWSER)
        assert not ELSEWHERE.search(page.text)
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        for name, kind in pages.ASSETS.items():
            assert f'="docs/{name}"' in page.text
            asset = await client.http.get(f"/docs/{name}")
            assert asset.headers["Content-Type"].startswith(kind)
            assert len(asset.content) > 100_000
        assert "url: 'openapi.json'" in page.text
        for name in ("LICENSE", "..%2fpages.py", "none"):
            assert (await client.http.get(f"/docs/{name}")).status_code == 404


def test_the_licences_are_beside_the_assets() -> None:
    folder = Path(pages.__file__).parent / "swagger_ui"
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert {"NOTICE", "swagger-ui-bundle.js.LICENSE.txt"} <= {one.name for one in folder.iterdir()}


async def test_without_a_key_no_agent_is_named(database_url: str, tmp_path: Path) -> None:
    made = await holdfast("keys", "new", "--subject", "me", "--scope", "admin")
    keys = tmp_path / "keys.toml"
    keys.write_text(made.out)
    async with (
        serving(database_url, api_keys_file=keys, console=0) as server,
        server.client() as anyone,
    ):
        page = await anyone.http.get("/", headers=BROWSER)
    assert page.status_code == 200
    assert "demo" not in page.text
