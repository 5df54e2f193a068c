"""The text of exceptions is shown, but for the secrets that the configuration names.

A tool, a reconciler, a plugin and a model's provider each put secrets into what they raise.
"""

import base64
import json
import re
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.keys import Holder, write_keys
from tests.support.providers import FakeProvider, fake_provider
from tests.support.rows import all_rows
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

PASSWORD, TOKEN, ANOTHER_KEY = "canary/of the database", "canary-of-a-remote", "canary-of-a-model"
SECRETS = [
    PASSWORD,
    "canary%2Fof%20the%20database",
    TOKEN,
    ANOTHER_KEY,
    base64.b64encode(f"user:{TOKEN}".encode()).decode(),
]

MODULE = '''
"""Failures whose texts contain secrets."""

import base64
import os

from holdfast import tool
from holdfast.plugins import AgentSpec, HookView, Phase, Plugin, PluginConfig, PluginKind, Request

TOKEN = os.environ["CANARY_TOKEN"]
BASIC = base64.b64encode(f"user:{TOKEN}".encode()).decode()


@tool(effect="read")
async def leak(where: str) -> str:
    """Fails with secrets in the text."""
    raise RuntimeError(f"no answer from {where}: {TOKEN} {BASIC} {os.environ['DATABASE_URL']}")


async def _fail(view: HookView) -> list[Request]:
    raise RuntimeError(f"the plugin can't use {TOKEN}")


def _build(spec: AgentSpec, config: PluginConfig) -> Plugin:
    return Plugin(name="leaking", hooks={Phase.RUN_START: _fail})


LEAKING = PluginKind(name="leaking", config=PluginConfig, build=_build)
'''

AGENTS = """
[models.script]
provider = "scripted"
script = "plain"

[models.far]
provider = "openai-compatible"
model = "chaos-401"
base_url = "{base_url}"
api_key_env = "CANARY_KEY"

[tools]
modules = ["leaking_tools"]

[agents.tools]
model = "script"
tools = ["leak"]

[agents.behind]
model = "script"
tools = ["leak"]
background = ["leak"]

[agents.plugins]
model = "script"
plugins.leaking = {{}}

[agents.models]
model = "far"

[agents.remote.endpoint]
backend = "a2a"
url = "http://127.0.0.1:9"
auth_env = "CANARY_TOKEN"
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running


@pytest.fixture(scope="module", params=["lines", "json"])
async def server(
    request: pytest.FixtureRequest,
    served_database: str,
    provider: FakeProvider,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("agents")
    (folder / "leaking_tools.py").write_text(MODULE)
    (folder / "agents.toml").write_text(AGENTS.format(base_url=provider.base_url))
    keys = write_keys(folder / "keys.toml", {"ann": Holder("acme")})
    url = re.sub(r"(://[^@]*)@", r"\1:canary%2Fof%20the%20database@", served_database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANARY_TOKEN", TOKEN)
        patch.setenv("CANARY_KEY", ANOTHER_KEY)
        async with serving(
            url,
            agents=folder / "agents.toml",
            api_keys_file=keys,
            log_level="debug",
            log_json=request.param == "json",
        ) as running:
            yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client("ann") as ours:
        yield ours


async def shown(client: Client, run_id: str) -> str:
    """All that a client can read of a run and its thread."""
    run = await client.settled(run_id)
    seen = [run, await client.log(f"/v1/threads/{run['thread_id']}")]
    for path in ("snapshot", "explain", "audit", "tasks"):
        seen.append(await client.get(f"/v1/runs/{run_id}/{path}"))
    seen.append(await client.get(f"/v1/threads/{run['thread_id']}/messages"))
    return json.dumps(seen)


@pytest.mark.parametrize(
    "agent, prompt, words",
    [
        ("tools", 'CALL leak {"where": "the bank"}', "no answer from the bank: [secret] "),
        ("behind", 'CALL leak {"where": "the bank"}', "no answer from the bank: [secret] "),
        ("plugins", "hello", "the plugin can't use [secret]"),
        ("models", "hello", "Incorrect API key"),
    ],
)
async def test_an_exceptions_text_is_shown_without_secrets(
    server: Server, client: Client, served_database: str, agent: str, prompt: str, words: str
) -> None:
    run = await client.start(agent, prompt)
    await client.ended(run["id"])
    seen = await shown(client, run["id"])
    stored = json.dumps(await all_rows(served_database))
    assert words in seen
    for text in (seen, stored, server.log):
        for secret in SECRETS:
            assert secret not in text, agent


async def test_logs_have_the_traceback_without_secrets(server: Server, client: Client) -> None:
    run = await client.start("tools", 'CALL leak {"where": "the log"}')
    await client.ended(run["id"])
    await server.printed(re.compile(r"RuntimeError: no answer from the log: \[secret\]"))
    for secret in SECRETS:
        assert secret not in server.log
