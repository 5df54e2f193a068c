"""`holdfast doctor` asks the providers of models and the server that it names, and looks for workers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.journeys.test_cli_doctor import findings
from tests.support.commands import holdfast
from tests.support.servers import serving, working

pytestmark = pytest.mark.anyio

OPENAI_LIST = json.dumps({"object": "list", "data": [{"id": "small"}, {"id": "large-2"}]})
GOOGLE_LIST = json.dumps({"models": [{"name": "models/small"}, {"name": "models/large-2"}]})


@contextmanager
def answering(status: int, body: str) -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """A server that answers every GET so; its address, and the paths and headers that it was asked with."""
    asked: list[tuple[str, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def agents_of(folder: Path, provider: str, model: str, base_url: str) -> str:
    file = folder / "agents.toml"
    file.write_text(
        f'[models.m]\nprovider = "{provider}"\nmodel = "{model}"\nbase_url = "{base_url}"\n'
        'api_key_env = "M_KEY"\n[agents.a]\nmodel = "m"\n'
    )
    return str(file)


async def checked(agents: str) -> str:
    nowhere = "postgresql://nobody@127.0.0.1:9/none"
    done = await holdfast(
        "doctor", "--agents", agents, DATABASE_URL=nowhere, HOLDFAST_PORT="9", M_KEY="sk-hunter2"
    )
    assert "hunter2" not in done.out + done.err
    return findings(done)["model m"]


@pytest.mark.parametrize(
    ("provider", "path", "header", "body"),
    [
        ("openai", "/models", ("authorization", "Bearer sk-hunter2"), OPENAI_LIST),
        ("anthropic", "/v1/models?limit=1000", ("x-api-key", "sk-hunter2"), OPENAI_LIST),
        ("google", "/v1beta/models?pageSize=1000", ("x-goog-api-key", "sk-hunter2"), GOOGLE_LIST),
    ],
)
async def test_a_models_name_is_checked_with_its_provider(
    tmp_path: Path, provider: str, path: str, header: tuple[str, str], body: str
) -> None:
    with answering(200, body) as (address, asked):
        known = await checked(agents_of(tmp_path, provider, "large-2", address))
        misspelt = await checked(agents_of(tmp_path, provider, "large2", address))
    assert known == "ok large-2, which its provider has"
    assert misspelt == "problem its provider has no model 'large2'; did you mean 'large-2'?"
    assert {one for one, _ in asked} == {path}
    assert all(headers[header[0]] == header[1] for _, headers in asked)


@pytest.mark.parametrize(
    ("status", "body", "finding"),
    [
        (401, "{}", "problem its provider refuses the API key (401)"),
        (404, "{}", "ok small; its provider has no list of models"),
        (200, "[]", "ok small; its provider has no list of models"),
        (200, "hello", "ok small; its provider wasn't asked: Expecting value"),
    ],
)
async def test_a_provider_may_refuse_the_key_or_have_no_list(
    tmp_path: Path, status: int, body: str, finding: str
) -> None:
    with answering(status, body) as (address, _):
        assert (await checked(agents_of(tmp_path, "openai", "small", address))).startswith(finding)


async def test_a_provider_that_can_not_be_reached_is_no_problem(tmp_path: Path) -> None:
    """The server may reach it where this machine can't."""
    found = await checked(agents_of(tmp_path, "openai", "small", "http://127.0.0.1:9"))
    assert found.startswith("ok small; its provider wasn't asked: ")


async def test_a_server_without_a_worker_is_a_problem(database_url: str) -> None:
    async with serving(database_url, role="api") as server:
        alone = await holdfast("doctor", url=server.base, DATABASE_URL=database_url)
        assert alone.code == 1
        assert findings(alone)["workers"].startswith("problem none lives, so runs stay queued.")
        async with working(database_url):
            with_worker = await holdfast("doctor", url=server.base, DATABASE_URL=database_url)
    assert findings(with_worker)["workers"] == "ok 1 live"


async def test_a_server_that_is_not_ready_is_a_problem(database_url: str) -> None:
    """A server that is stopping answers /health with 503."""
    async with serving(database_url, drain_delay=30) as server:
        server.terminate()
        async with server.client() as client:
            while (await client.http.get("/health")).status_code == 200:
                pass
        done = await holdfast("doctor", url=server.base, DATABASE_URL=database_url)
    assert findings(done)["server"] == f"problem {server.base} is draining: database ok"


async def test_another_server_at_the_address_is_a_problem(database_url: str) -> None:
    with answering(200, "<html>") as (address, _):
        done = await holdfast("doctor", url=address, DATABASE_URL=database_url)
    assert findings(done)["server"].endswith("isn't a Holdfast server (200)")
