"""The JavaScript of the guides works against a real server."""

import asyncio
from pathlib import Path

import pytest

from tests.support.documents import block_after, page
from tests.support.servers import Server
from tests.support.streams import Client
from tests.system.programs import program

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

GUIDE = "docs/how-to/web-pages.md"


async def printed_by(server: Server, agent: str, folder: Path) -> tuple[int | None, list[str]]:
    """The exit code of the guide's script, and the types of the events that it shows."""
    script = block_after(page(GUIDE), "follow a run")
    assert "'demo'" in script
    script = script.replace("https://holdfast.example.com", server.base)
    script = script.replace("'demo'", f"'{agent}'")
    shown = "const key = 'none';\nconst show = (event) => console.log(event.event_type);\n"
    (folder / "page.mjs").write_text(shown + script)
    process = await asyncio.create_subprocess_exec(
        program("node"),
        folder / "page.mjs",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return process.returncode, printed.decode().splitlines()


async def test_a_page_starts_and_follows_a_run_as_the_guide_says(
    server: Server, client: Client, tmp_path: Path
) -> None:
    code, shown = await printed_by(server, "quick", tmp_path)
    assert code == 0, shown
    [run] = (await client.get("/v1/runs", agent_id="quick", limit=1))["items"]
    log = await client.get(f"/v1/runs/{run['id']}/events", limit=500)
    types = [event["event_type"] for event in log["items"]]
    assert list(dict.fromkeys(shown)) == list(dict.fromkeys(types))
    assert shown[-1] == "run_finish"


async def test_a_refused_start_throws_its_detail(server: Server, tmp_path: Path) -> None:
    code, shown = await printed_by(server, "no-such-agent", tmp_path)
    assert code == 1
    assert any("no-such-agent" in line for line in shown)
