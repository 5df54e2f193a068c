"""The EventSource of a real browser receives a whole run although its server dies or is replaced."""

import hashlib
import json
import secrets
from pathlib import Path

import pytest

from tests.support.event_order import check_run
from tests.support.ports import free_port
from tests.support.servers import serving
from tests.support.streams import text_of
from tests.system.browsers import PAGES, browsing, page_reports
from tests.system.nginx import Nginx, proxying

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MANY_WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa " * 60
# A browser doesn't reconnect after a 502, but does when the connection closes without an answer.
NO_ANSWER = "error_page 502 504 = @away;"
PAGE = """
        location = /follow.html {{ root {pages}; }}
        location = /report {{ proxy_pass http://127.0.0.1:{port}; }}
        location @away {{ return 444; }}
"""


@pytest.mark.parametrize("end", ["kill", "terminate"])
async def test_a_browser_reconnects_after_a_restart(
    shared_database_url: str, agents: Path, tmp_path: Path, end: str
) -> None:
    key = secrets.token_urlsafe()
    keys = [
        {
            "subject": "ann",
            "tenant": "default",
            "scopes": ["runs:read", "runs:write"],
            "sha256": hashlib.sha256(key.encode()).hexdigest(),
        }
    ]
    port = free_port()
    settings = {"agents": agents, "api_keys": json.dumps(keys), "port": port}
    async with page_reports() as page:
        more = PAGE.format(pages=PAGES, port=page.port)
        nginx = Nginx(tmp_path / "nginx", [port], proxying=NO_ANSWER, more=more)
        async with serving(shared_database_url, **settings) as server, proxying(nginx):
            async with server.client(key) as client:
                started = await client.start("talker", MANY_WORDS)
                run_id = started["id"]
                token = await client.post("/v1/stream-tokens", {"run_id": run_id}, 201)
            url = f"{nginx.base}/follow.html?run={run_id}&token={token['token']}"
            async with browsing(url, tmp_path / "profile"):
                await page.has_reported(20)
                getattr(server, end)()
                await server.gone()
                async with serving(shared_database_url, **settings) as again:
                    await page.was_closed()
                    async with again.client(key) as client:
                        assert page.events == await client.log(f"/v1/runs/{run_id}")
                        record = await client.settled(run_id)
    check_run(page.events)
    assert page.times_opened >= 2
    assert record["outcome"] == "succeeded"
    assert text_of(page.events) == record["final_output"]
