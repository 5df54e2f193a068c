"""The example page in a real browser, behind nginx: it shows a run that waits for a person and then ends."""

import hashlib
import json
import random
import secrets
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.servers import serving, working
from tests.support.streams import types_of
from tests.system.browsers import browsing, page_reports
from tests.system.nginx import Nginx, proxying

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

PAGE = Path(__file__).parents[2] / "examples" / "web_page" / "index.html"
OBSERVER = """
<script>
  const at = (id) => document.getElementById(id).innerText;
  new MutationObserver(() => {
    if (at('status').startsWith('done')) {
      const shown = { status: at('status'), answer: at('answer'), calls: at('calls') };
      fetch('/report', { method: 'POST', body: JSON.stringify({ closed: true, shown }) });
    }
  }).observe(document.getElementById('status'), { childList: true });
</script>
"""
RELOADING = """
<script>
  const delays = {delays};
  const reloads = location.search.includes('reloads');
  const report = (body) =>
    fetch(reloads ? '/report' : '/other', {{ method: 'POST', body: JSON.stringify(body) }});
  const times = Number(sessionStorage.times ?? 0);
  report({{ opened: true }});
  if (reloads && times < delays.length) {{
    sessionStorage.times = times + 1;
    setTimeout(() => location.reload(), delays[times]);
  }}
  const text = (id) => document.getElementById(id).innerText;
  const timer = setInterval(() => {{
    if (!text('status').startsWith('done') || (reloads && times < delays.length)) return;
    clearInterval(timer);
    const shown = {{ status: text('status'), answer: text('answer'), calls: text('calls') }};
    report({{ closed: true, shown }});
  }}, 50);
</script>
"""
MORE = """
        location = /index.html {{ root {folder}; }}
        location = /report {{ proxy_pass http://127.0.0.1:{port}; }}
"""
OTHER = "        location = /other {{ proxy_pass http://127.0.0.1:{port}; }}\n"


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
    async with page_reports() as page, serving(shared_database_url, **settings) as server:
        more = MORE.format(folder=folder, port=page.port)
        nginx = Nginx(tmp_path / "nginx", [port], more=more)
        async with proxying(nginx), server.client(key) as client:
            started = await client.start("quick", 'CALL risky {"what": "it"}')
            run_id = started["id"]
            token = await client.post("/v1/stream-tokens", {"run_id": run_id}, 201)
            url = f"{nginx.base}/index.html?run={run_id}&token={token['token']}"
            async with browsing(url, tmp_path / "profile"):
                await client.decide(await client.settled(run_id), "approve")
                record = await client.settled(run_id)
                await page.was_closed()
    assert page.shown["status"] == "done: natural_end"
    assert page.shown["answer"].split() == record["final_output"].split()
    assert "risky" in page.shown["calls"]


@pytest.mark.parametrize("seed", [1])
async def test_a_reloaded_page_shows_the_same_as_one_that_was_never_reloaded(
    shared_database_url: str, agents: Path, tmp_path: Path, seed: int
) -> None:
    """Ten reloads at random moments of a run with two approvals, whose worker is killed while it answers."""
    chance = random.Random(seed)
    delays = [chance.randrange(50, 1_000) for _ in range(10)]
    folder = tmp_path / "pages"
    folder.mkdir()
    script = RELOADING.format(delays=json.dumps(delays))
    (folder / "index.html").write_text(PAGE.read_text().replace("</html>", script + "</html>"))
    port = free_port()
    settings = {"agents": agents, "heartbeat_timeout": 1.0}
    calls = [f"CALL risky {json.dumps({'what': f'{name} ' * 150})}" for name in ("one", "two")]
    async with (
        page_reports() as reloaded,
        page_reports() as untouched,
        serving(shared_database_url, role="api", port=port, **settings) as server,
        server.client() as client,
    ):
        more = MORE.format(folder=folder, port=reloaded.port) + OTHER.format(port=untouched.port)
        nginx = Nginx(tmp_path / "nginx", [port], more=more)
        async with proxying(nginx), working(shared_database_url, **settings) as first:
            run_id = (await client.start("careful", " ".join(calls)))["id"]
            token = (await client.post("/v1/stream-tokens", {"run_id": run_id}, 201))["token"]
            url = f"{nginx.base}/index.html?run={run_id}&token={token}"
            async with (
                browsing(url, tmp_path / "untouched"),
                browsing(f"{url}&reloads=1", tmp_path / "reloaded"),
            ):
                await reloaded.was_opened(3)
                await client.decide(await client.settled(run_id), "approve")
                await reloaded.was_opened(5)
                async with client.events(f"/v1/runs/{run_id}") as stream:
                    await stream.until("ticket_opened", 2)
                await client.decide(await client.settled(run_id), "approve")
                async with client.events(f"/v1/runs/{run_id}") as stream:
                    await stream.until("text_delta", 20)
                    first.kill()
                async with working(shared_database_url, **settings):
                    record = await client.ended(run_id)
                    await reloaded.was_closed()
                    await untouched.was_closed()
                log = await client.log(f"/v1/runs/{run_id}")
    assert "stream_reset" in types_of(log)
    assert (reloaded.times_opened, untouched.times_opened) == (len(delays) + 1, 1)
    assert reloaded.shown == untouched.shown
    assert reloaded.shown["status"] == "done: natural_end"
    assert reloaded.shown["calls"].split("\n") == ["risky: succeeded"] * 2
    assert reloaded.shown["answer"].split() == record["final_output"].split()
