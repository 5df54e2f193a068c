"""The example page in a real browser, behind nginx: it shows a run that waits for a person and then ends."""

import hashlib
import json
import secrets
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.servers import serving
from tests.system.browsers import browsing, telling
from tests.system.nginx import Nginx, proxying

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

PAGE = Path(__file__).parents[2] / "examples" / "web_page" / "index.html"
OBSERVER = """
<script>
  const at = (id) => document.getElementById(id).innerText;
  new MutationObserver(() => {
    if (at('status').startsWith('done')) {
      const shown = { status: at('status'), answer: at('answer'), calls: at('calls') };
      fetch('/heard', { method: 'POST', body: JSON.stringify({ closed: true, shown }) });
    }
  }).observe(document.getElementById('status'), { childList: true });
</script>
"""
MORE = """
        location = /index.html {{ root {folder}; }}
        location = /heard {{ proxy_pass http://127.0.0.1:{port}; }}
"""


async def test_the_page_shows_a_run_from_its_start_to_its_end(
    shared_database_url: str, agents: Path, tmp_path: Path
) -> None:
    key = secrets.token_urlsafe()
    scopes = ["runs:read", "runs:write", "decisions:write"]
    keys = [
        {
            "subject": "ann",
            "tenant": "default",
            "scopes": scopes,
            "sha256": hashlib.sha256(key.encode()).hexdigest(),
        }
    ]
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE.read_text().replace("</html>", OBSERVER + "</html>"))
    port = free_port()
    settings = {"agents": agents, "api_keys": json.dumps(keys), "port": port}
    async with telling() as page, serving(shared_database_url, **settings) as server:
        more = MORE.format(folder=folder, port=page.port)
        nginx = Nginx(tmp_path / "nginx", [port], more=more)
        async with proxying(nginx), server.client(key) as client:
            started = await client.start("quick", 'CALL risky {"what": "it"}')
            run_id = started["run_id"]
            token = await client.post("/v1/stream-tokens", {"run_id": run_id}, 201)
            url = f"{nginx.base}/index.html?run={run_id}&token={token['token']}"
            async with browsing(url, tmp_path / "profile"):
                await client.decide(await client.settled(run_id), "approve")
                record = await client.settled(run_id)
                await page.was_closed()
    assert page.shown["status"] == "done: natural_end"
    assert page.shown["answer"].split() == record["final_output"].split()
    assert "risky" in page.shown["calls"]
