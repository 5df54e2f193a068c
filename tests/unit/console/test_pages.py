"""Pages and the files that draw them; headers; the sizes of sources and of what is sent."""

import json
import re
from collections import Counter
from gzip import decompress
from pathlib import Path

import pytest

from app.console import headers
from app.console.assets import Assets, load_assets
from app.console.pages import FIRST_PAGE, PAGES
from app.console.shell import not_built, shell
from app.domain.errors import ConfigurationError
from app.http.origins.public_url import load_public_url
from tests.support.console import WEB

MAX_LINES = 250
MAX_MODULES = 25
SOURCES = [
    path
    for folder in ("core", "events", "parts", "pages", "css", "tests")
    for path in (WEB / folder).rglob("*")
    if path.is_file() and path.name != "openapi.d.ts"
]
INLINE = re.compile(r"<script(?![^>]*\ssrc=)|<style|\son\w+=|\sstyle=|javascript:")
NEVER = re.compile(
    r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function|document\.write"
)


@pytest.fixture
def assets(static: Path) -> Assets:
    found = load_assets(static)
    assert found is not None
    return found


def test_each_page_has_a_file_of_its_name(assets: Assets) -> None:
    names = {path.stem for path in (WEB / "pages").glob("*.tsx")}
    assert set(PAGES.values()) == names == assets.pages.keys()
    assert FIRST_PAGE in PAGES


def test_the_licences_of_libraries_are_beside_the_files(static: Path) -> None:
    text = (static / "licenses.txt").read_text()
    for name in ("preact", "diff", "mdast-util-from-markdown", "micromark"):
        assert f"{name}\n\n" in text
    assert text.count("Permission") > 10


def test_source_files_are_short() -> None:
    counts = {str(path.relative_to(WEB)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: count for name, count in counts.items() if count > MAX_LINES} == {}
    assert len(counts) > 30
    folders = Counter(path.parent for path in SOURCES)
    assert {folder: count for folder, count in folders.items() if count > MAX_MODULES} == {}


def test_no_source_makes_markup_or_code_of_text() -> None:
    found = {path.name: NEVER.findall(path.read_text()) for path in SOURCES}
    assert {name: matches for name, matches in found.items() if matches} == {}


def test_only_the_client_and_the_reducers_spell_wire_names() -> None:
    """So a renamed field of the API changes these files only."""
    wire = re.compile(
        r"\b(?:tool_call_id|run_id|thread_id|agent_id|tool_name|event_type|next_cursor|args_digest)\b"
    )
    found = {
        str(path.relative_to(WEB)): wire.findall(path.read_text())
        for path in SOURCES
        if not path.relative_to(WEB).as_posix().startswith(("core/api/", "events/", "tests/"))
    }
    assert {name: matches for name, matches in found.items() if matches} == {}


def test_the_lock_file_names_no_registry() -> None:
    text = (WEB / "package-lock.json").read_text()
    assert "resolved" not in text
    assert "://" not in re.sub(r'"(?:url|homepage)": "[^"]*"', "", text)


def test_what_a_page_needs_stays_within_its_budget(static: Path, assets: Assets) -> None:
    sizes = {name: len((static / f"{name}.gz").read_bytes()) for name in assets.names}
    libraries = json.loads((static / "manifest.json").read_text())["libraries"]
    shares = {name: libraries.get(name, 0) / (static / name).stat().st_size for name in sizes}
    assert sizes[assets.style] <= 8_000
    for name, page in assets.pages.items():
        scripts = [page.script, *page.preload]
        ours = sum(sizes[one] * (1 - shares[one]) for one in scripts)
        others = sum(sizes[one] * shares[one] for one in scripts)
        assert others <= 30_000, f"{name}: libraries"
        assert ours <= 45_000, f"{name}: own scripts"
        everything = [*scripts, assets.style, assets.theme, assets.icon]
        assert sum(sizes[one] for one in everything) <= 85_000, name
        assert len(everything) + 1 <= 12, name


def test_the_compressed_files_are_the_same(static: Path, assets: Assets) -> None:
    for name in assets.names:
        assert decompress(assets.content(name, compressed=True)) == assets.content(
            name, compressed=False
        )


def test_the_shell_has_no_inline_script_or_style(assets: Assets) -> None:
    page = shell(assets, "Inbox", "/agents")
    assert INLINE.search(page) is None
    assert 'data-prefix="/agents"' in page
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert loaded
    assert all(one.startswith("/agents/console/assets/") for one in loaded)
    assert {one.rpartition("/")[2] for one in loaded} <= assets.names
    assert INLINE.search(not_built()) is None


def test_a_folder_without_a_build_has_no_assets(tmp_path: Path) -> None:
    assert load_assets(tmp_path) is None


@pytest.mark.parametrize(
    ("host", "files"),
    [
        ("127.0.0.1:8000", "127.0.0.1:8000/agents/console/assets/"),
        ("example.com", "example.com/agents/console/assets/"),
        ("[::1]:8000", "'self'"),
        ("x; script-src *", "'self'"),
        ("", "'self'"),
    ],
)
def test_the_policy_allows_scripts_from_the_built_files_only(host: str, files: str) -> None:
    policy = headers.of_shell(host, "/agents")["Content-Security-Policy"].split("; ")
    assert f"script-src {files}" in policy
    assert {"default-src 'none'", "trusted-types 'none'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in "".join(policy)


@pytest.mark.parametrize(
    ("text", "origin", "prefix"),
    [
        ("https://Example.com:443/", "https://example.com", ""),
        ("https://example.com/a/b/", "https://example.com", "/a/b"),
        ("http://localhost:8000", "http://localhost:8000", ""),
        ("http://[::1]:80/x", "http://[::1]", "/x"),
    ],
)
def test_a_public_url_has_an_origin_and_a_path(text: str, origin: str, prefix: str) -> None:
    found = load_public_url(text)
    assert found is not None
    assert (found.origin, found.prefix) == (origin, prefix)


@pytest.mark.parametrize(
    "text", ["example.com", "ftp://x", "https://x/?a", "https://x y", "https://u:p@x"]
)
def test_a_malformed_public_url_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_PUBLIC_URL"):
        load_public_url(text)
