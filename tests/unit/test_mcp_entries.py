"""MCP servers in the agents file: what is accepted, and what each mistake is told."""

from pathlib import Path

import pytest

from app.domain.ids import AgentId
from app.tools.mcp.server_spec import Effects, Pin
from tests.support.agents_files import MODELS, TOOLS, load, problems

SERVER = """
[mcp.shop]
command = "shop-server"
cwd = "data"
approval = ["pay*"]
pin = "warn"
"""
OAUTH = 'issuer = "https://b.example"\nclient_id = "c"\nclient_secret_env = "S"'
AGENT = """
[agents.clerk]
model = "fast"
tools = ["shop/find_*", "shop/pay"]
approval = ["shop__find_order"]
approvers = { shop__pay = { quorum = 2 } }
[agents.clerk.plugins.permission]
rules = [{ tool = "shop__pay(amount > 50)", behavior = "deny" }]
"""


def test_a_server_is_read_with_its_defaults(tmp_path: Path) -> None:
    catalog = load(tmp_path, MODELS + SERVER + AGENT)
    shop = catalog.mcp["shop"]
    assert (shop.command, shop.cwd, shop.pin) == ("shop-server", tmp_path / "data", Pin.WARN)
    assert shop.asks_for("pay_all")
    assert not shop.asks_for("find")
    assert shop.effects is Effects.HINTS
    assert catalog.agents[AgentId("clerk")].has_mcp_tools


def test_the_hints_of_an_address_are_not_believed(tmp_path: Path) -> None:
    server = '[mcp.shop]\nurl = "https://shop.example/mcp"\nauth_env = "TOKEN"\n'
    assert load(tmp_path, MODELS + server + AGENT).mcp["shop"].effects is Effects.UNSAFE


@pytest.mark.parametrize(
    ("server", "place", "sentence"),
    [
        ("", "mcp.shop", "needs either command or url"),
        ('command = "a"\nurl = "https://a.example"', "mcp.shop", "needs either command or url"),
        ('url = "https://a.example"\nargs = []', "mcp.shop", "args belongs to a command"),
        ('url = "ftp://a.example"', "mcp.shop.url", ""),
        ('url = "https://user:pw@a.example"', "mcp.shop.url", "password"),
        ('command = "a"\nauth_env = "T"', "mcp.shop", "env_from"),
        ('command = "a"\ntools = ["[a"]', "mcp.shop.tools[0]", "isn't closed"),
        ('command = "a"\ncomand = "b"', "mcp.shop.comand", "did you mean 'command'"),
        (f'command = "a"\n[mcp.shop.oauth]\n{OAUTH}', "mcp.shop", "oauth belongs to a url"),
        (
            f'url = "https://a.example"\nauth_env = "T"\n[mcp.shop.oauth]\n{OAUTH}',
            "mcp.shop",
            "oauth belongs to a url without auth_env",
        ),
        (
            f'url = "https://a.example"\n[mcp.shop.oauth]\n{OAUTH}\nscopes = ["a b"]',
            "mcp.shop.oauth.scopes[0]",
            "",
        ),
        (
            'url = "https://a.example"\n[mcp.shop.oauth]\nissuer = "https://b.example"\nclient_id = "c"',
            "mcp.shop.oauth",
            "needs client_secret_env",
        ),
        (
            'url = "https://a.example"\n[mcp.shop.oauth]\nclient_id = "c"\nclient_secret_env = "S"',
            "mcp.shop.oauth.issuer",
            "",
        ),
        ('command = "a"\ntimeout = "60s"', "mcp.shop.timeout", "timeout = 60"),
        ('command = "a"\npin = "always"', "mcp.shop.pin", ""),
    ],
)
def test_a_mistake_in_a_server_is_named(
    tmp_path: Path, server: str, place: str, sentence: str
) -> None:
    agent = '[agents.clerk]\nmodel = "fast"\n'
    [found] = problems(tmp_path, f"{MODELS}\n[mcp.shop]\n{server}\n{agent}")
    assert found.startswith(place)
    assert sentence in found


@pytest.mark.parametrize(
    ("tools", "sentence"),
    [
        ('["shpo/pay"]', "did you mean 'shop'"),
        ('["shop/"]', 'write "shop/*"'),
        ('["shop/[a"]', "isn't closed"),
    ],
)
def test_a_mistake_in_a_reference_is_named(tmp_path: Path, tools: str, sentence: str) -> None:
    agent = f'[agents.clerk]\nmodel = "fast"\ntools = {tools}\n'
    [found] = problems(tmp_path, MODELS + SERVER + agent)
    assert found.startswith("agents.clerk.tools[0]")
    assert sentence in found


def test_a_function_may_not_have_the_name_of_a_servers_tool(tmp_path: Path) -> None:
    tools = TOOLS.replace("def look", "def shop__look")
    file = MODELS + SERVER + '[tools]\nmodules = ["mine"]\n' + AGENT
    [found] = problems(tmp_path, file, mine=tools)
    assert "your tool 'shop__look'" in found


@pytest.mark.parametrize("name", ["a__b", "_a", "a_", "a.b", "x" * 33])
def test_a_servers_name_is_checked(tmp_path: Path, name: str) -> None:
    agent = '[agents.clerk]\nmodel = "fast"\n'
    [found] = problems(tmp_path, f'{MODELS}\n[mcp."{name}"]\ncommand = "a"\n{agent}')
    assert "rename it" in found
