"""Secrets appear in no log, event, response, metric or document.

Everything is made to fail once, so that every message about a failure is written.
"""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests.support.commands import holdfast
from tests.support.forwarders import Forwarder, forwarding
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

PASSWORD, PROVIDER_KEY = "canary-of-the-database", "canary-of-the-provider"
KEY, UNKNOWN_KEY = "canary-of-a-client", "canary-of-an-unknown-client"
MESSAGE, TOKEN = "canary-in-a-message", "canary-in-a-token"
SECRETS = [PASSWORD, PROVIDER_KEY, KEY, UNKNOWN_KEY, TOKEN]

AGENTS = """
[models.script]
provider = "scripted"
script = "plain"

[models.away]
provider = "openai-compatible"
model = "any"
base_url = "http://127.0.0.1:9/v1"
api_key_env = "CANARY_OF_THE_PROVIDER"

[agents.quick]
model = "script"

[agents.lost]
model = "away"
"""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("agents") / "agents.toml"
    file.write_text(AGENTS)
    return file


@pytest.fixture(scope="module")
async def forwarder(served_database: str) -> AsyncIterator[Forwarder]:
    async with forwarding(served_database) as forwarder:
        yield forwarder


@pytest.fixture(scope="module", params=["lines", "json"])
async def server(
    request: pytest.FixtureRequest, forwarder: Forwarder, agents: Path
) -> AsyncIterator[Server]:
    keys = write_keys(agents.with_name("keys.toml"), {KEY: Holder("acme")})
    # Here a key equals its subject, which logs may show; so the subject gets another name.
    keys.write_text(keys.read_text().replace(f'subject = "{KEY}"', 'subject = "ann"'))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANARY_OF_THE_PROVIDER", PROVIDER_KEY)
        async with serving(
            with_password(forwarder.url),
            agents=agents,
            api_keys_file=keys,
            log_level="debug",
            log_json=request.param == "json",
        ) as running:
            yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client(KEY) as ours:
        yield ours


def with_password(url: str) -> str:
    return re.sub(r"(://[^@]*)@", rf"\1:{PASSWORD}@", url)


def without_secrets(*texts: str) -> None:
    for text in texts:
        for secret in SECRETS:
            assert secret not in text


async def test_no_failure_shows_a_secret(
    server: Server, client: Client, forwarder: Forwarder, served_database: str
) -> None:
    lost = await client.settled((await client.start("lost", "hello"))["id"])
    assert lost["outcome"] == "failed"
    seen = [json.dumps(lost), json.dumps(await client.log(f"/v1/threads/{lost['thread_id']}"))]
    for path in ("explain", "snapshot", "audit"):
        seen.append(json.dumps(await client.get(f"/v1/runs/{lost['id']}/{path}")))
    async with server.client(UNKNOWN_KEY) as unauthenticated:
        for answer in (
            await unauthenticated.http.get("/v1/runs"),
            await unauthenticated.http.get(
                f"/v1/runs/{lost['id']}/events", params={"stream_token": TOKEN}
            ),
            await unauthenticated.http.get(
                "/v1/runs", headers={"Authorization": f"Basic {UNKNOWN_KEY}"}
            ),
            await unauthenticated.http.get("/v1/runs", headers={"Cookie": f"key={UNKNOWN_KEY}"}),
        ):
            seen.append(the_problem(answer, 401, json.loads(answer.text)["code"])["detail"])
    seen.append(await broken_inside(client, served_database))
    await forwarder.block()
    try:
        async with server.client(KEY) as while_blocked:
            away = await while_blocked.http.get("/health")
            refused = await while_blocked.http.post("/v1/runs", json=start_body("quick", "hello"))
    finally:
        await forwarder.open()
    assert away.status_code == 503
    seen += [away.text, the_problem(refused, 503, "database_unavailable")["detail"]]
    for path in ("/openapi.json", "/metrics", "/docs"):
        seen.append((await client.http.get(path)).text)
    without_secrets(*seen, server.log)
    assert "Traceback" in server.log, "no unexpected exception was logged"
    assert MESSAGE not in server.log


async def broken_inside(client: Client, database: str) -> str:
    """The response to an unexpected exception, whose traceback is in the log."""
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("ALTER TABLE threads RENAME TO renamed")
        try:
            response = await client.http.post("/v1/threads", json={"title": MESSAGE})
        finally:
            await connection.execute("ALTER TABLE renamed RENAME TO threads")
    finally:
        await connection.close()
    assert response.status_code == 500
    assert response.json()["code"] == "internal_error"
    assert MESSAGE not in response.text
    return response.text


PATHS = [
    "/v1/runs/%0a2026-01-01T00:00:00Z%20[error]%20forged",
    "/v1/runs/%0d%0aforged",
    "/v1/%1b[2J%1b]0;forged%07",
    "/v1/runs/%e2%80%a8forged%e2%80%ae",
    "/v1/runs/%c2%9b31mforged",
    "/v1/runs/%00%ff%fe",
]


async def test_no_request_can_forge_a_log_line(server: Server, client: Client) -> None:
    for path in PATHS:
        await client.http.get(path, headers={b"X-Request-Id": b"forged\x1b[31m"})
    run = await client.start("quick", "hello")
    reason = {"reason": "\nforged\x1b[31m\r\u2028forged"}
    await client.http.post(f"/v1/runs/{run['id']}/cancel", json=reason)
    await client.http.get("/v1/runs", headers={b"Host": b"forged\x1b[31m"})
    await client.http.get("/v1/runs/forged-path", headers={"X-Request-Id": "forged-last"})
    await server.printed(re.compile("forged-last"))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", server.log)
    lines = server.log.splitlines()
    assert "forged-path" not in server.log, "addresses are logged as route templates"
    for line in lines:
        if "forged" in line:
            assert re.match(r'\d{4}-\d\d-\d\dT[\d:.]+Z \[\w+ *\] \w|{"', line), line


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{PASSWORD}@127.0.0.1:9/db",
        f"postgresql://ann:{PASSWORD}#1@127.0.0.1/db",
        f"postgresql://ann:{PASSWORD}/1@127.0.0.1/db",
        f"postgresql://ann:1/{PASSWORD}@127.0.0.1/db",
        f"postgresql://ann:{PASSWORD}?1@127.0.0.1/db",
        f"postgresql://ann:{PASSWORD}@[::1/db",
        f"postgresql://ann:{PASSWORD}@127.0.0.1:port/db",
        f"postgresql://127.0.0.1:9/db?password={PASSWORD}",
        f"://ann:{PASSWORD}@127.0.0.1/db",
        f"ann:{PASSWORD}@127.0.0.1/db",
        f"host=127.0.0.1 password={PASSWORD}",
        PASSWORD,
    ],
)
async def test_no_database_url_error_shows_the_password(url: str) -> None:
    done = await holdfast("doctor", DATABASE_URL=url)
    assert done.code == 1
    assert "problem  database: " in done.out
    assert "Traceback" not in done.err
    for part in ("canary", PASSWORD[:12]):
        assert part not in done.out + done.err
