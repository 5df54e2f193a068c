"""The built site of the documents shows its diagrams in a browser that reaches no other host."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.ports import free_port
from tests.system.browsers import browsing, page_reports
from tests.system.nginx import Nginx, proxying

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SITE = ROOT / "site"
OBSERVER = """
<script>
  const attachShadow = Element.prototype.attachShadow;
  const roots = [];
  Element.prototype.attachShadow = function (options) {
    roots.push(attachShadow.call(this, options));
    return roots.at(-1);
  };
  const timer = setInterval(() => {
    const drawings = roots.map((root) => root.querySelector('svg')).filter((svg) => svg);
    if (drawings.length === DIAGRAMS) {
      clearInterval(timer);
      const shown = {
        texts: drawings.map((svg) => svg.textContent).join('\\n'),
        widths: drawings.map((svg) => svg.getBoundingClientRect().width).join(' '),
        addresses: performance.getEntriesByType('resource').map((one) => one.name).join('\\n'),
      };
      fetch('/report', { method: 'POST', body: JSON.stringify({ closed: true, shown }) });
    }
  }, 50);
</script>
"""
LOCATIONS = """
        include /etc/nginx/mime.types;
        location /site/ {{ root {folder}; }}
        location = /report {{ proxy_pass http://127.0.0.1:{port}; }}
"""


@pytest.fixture(scope="module")
def site() -> Path:
    subprocess.run(["make", "--no-print-directory", "site"], cwd=ROOT, check=True)
    return SITE


def test_no_page_refers_to_a_script_style_or_image_of_another_host(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//[^>]*>")
    linked = re.compile(r"<link\b(?![^>]*rel=\"canonical\")[^>]*\bhref=\"(?:https?:)?//[^>]*>")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        assert loaded.findall(text) + linked.findall(text) == [], page


def test_only_pages_with_diagrams_load_mermaid(site: Path) -> None:
    """Its licence is beside it."""
    assert "MIT" in (site / "assets" / "javascripts" / "mermaid.LICENSE").read_text()
    loads = {page.stem for page in site.rglob("*.html") if "mermaid.tiny.js" in page.read_text()}
    sources = [page for page in (ROOT / "docs").rglob("*.md") if "```mermaid" in page.read_text()]
    assert loads == {page.stem for page in sources}


@pytest.mark.parametrize(("name", "word"), [("architecture", "Postgres"), ("states", "running")])
async def test_a_page_draws_its_diagrams(site: Path, tmp_path: Path, name: str, word: str) -> None:
    shutil.copytree(site, tmp_path / "site")
    page = tmp_path / "site" / "explanation" / f"{name}.html"
    diagrams = (ROOT / "docs" / "explanation" / f"{name}.md").read_text().count("```mermaid")
    observer = OBSERVER.replace("DIAGRAMS", str(diagrams))
    page.write_text(page.read_text().replace("</head>", observer + "</head>"))
    async with page_reports() as report:
        more = LOCATIONS.format(folder=tmp_path, port=report.port)
        nginx = Nginx(tmp_path / "nginx", [free_port()], more=more)
        async with proxying(nginx):
            url = f"{nginx.base}/site/explanation/{name}.html"
            async with browsing(url, tmp_path / "profile"):
                await report.was_closed()
    assert word in report.shown["texts"]
    assert "Syntax error" not in report.shown["texts"]
    assert all(float(width) > 100 for width in report.shown["widths"].split())
    addresses = report.shown["addresses"].splitlines()
    assert any(address.endswith("/mermaid.tiny.js") for address in addresses)
    assert [one for one in addresses if not one.startswith(nginx.base)] == []
