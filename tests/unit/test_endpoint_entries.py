"""Remote agents in an agents file: each error names its key."""

from pathlib import Path

import pytest

from app.agents.catalog import load_catalog
from app.bootstrap.agents import known_backends
from app.domain.agents.capabilities import REMOTE_STATELESS_TEXT
from app.domain.agents.endpoints import Endpoint
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId
from tests.support.echo_backend import Echo

A2A = '[agents.far.endpoint]\nbackend = "a2a"\nurl = "https://far.test"\n'
HOLDFAST = '[agents.far.endpoint]\nbackend = "holdfast"\nurl = "https://far.test"\ntarget = "far"\n'


def endpoint(folder: Path, text: str) -> Endpoint:
    file = folder / "agents.toml"
    file.write_text(text)
    found = load_catalog(file, endpoints=known_backends()).agents[AgentId("far")].endpoint
    assert found is not None
    return found


@pytest.mark.parametrize("text", [A2A, HOLDFAST])
def test_a_valid_entry_is_read_completely(tmp_path: Path, text: str) -> None:
    found = endpoint(
        tmp_path, f"{text}auth_env = 'TOKEN'\ntimeout = 5\noptions = {{ retry_seconds = 3 }}"
    )
    assert (found.url, found.auth_env, found.timeout) == ("https://far.test", "TOKEN", 5.0)
    assert found.options == {"retry_seconds": 3}


@pytest.mark.parametrize(
    "text, key, emitted",
    [
        (A2A.replace('"a2a"', '"a2b"'), "backend", "did you mean 'a2a'"),
        (A2A.replace("https://", ""), "url", "should match pattern"),
        (A2A.replace("far.test", "u:hunter2@far.test"), "url", "must not have a password"),
        (A2A.replace("far.test", "far.test/?key=hunter2"), "url", "without spaces, query"),
        (A2A.replace("far.test", "far test"), "url", "without spaces, query"),
        (A2A.replace("far.test", "far.test:99999"), "url", "out of range"),
        (f"{A2A}timeout = 0", "timeout", "greater than 0"),
        (f"{A2A}timeout = 'long'", "timeout", "valid number"),
        (f"{A2A}auth_env = 'not a name'", "auth_env", "should match pattern"),
        (f"{A2A}token = 'hunter2'", "token", "unknown key"),
        (f"{A2A}options = 7", "options", "must be a table"),
        (f"{A2A}options = {{ poll_interval = 0 }}", "options.poll_interval", "greater than 0"),
        (f"{A2A}options = {{ streaming = 'no' }}", "options.streaming", "valid boolean"),
        (f"{A2A}options = {{ polling = true }}", "options.polling", "remove it"),
        (HOLDFAST.replace("target", "auth_env"), "target", 'add target = "…"'),
        (
            f"{HOLDFAST}options = {{ retry_seconds = -1 }}",
            "options.retry_seconds",
            "greater than 0",
        ),
        (f"{HOLDFAST}options = {{ streaming = true }}", "options.streaming", "remove it"),
    ],
)
def test_an_error_names_the_wrong_key_and_never_its_value(
    tmp_path: Path, text: str, key: str, emitted: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        endpoint(tmp_path, text)
    [line] = str(refused.value).splitlines()
    assert f"agents.far.endpoint.{key}: " in line
    assert emitted in line
    assert "hunter2" not in line


_BOSS = """
[models.script]
provider = "scripted"
script = "plain"

[agents.far.endpoint]
backend = "echo"
url = "https://far.test"

[agents.boss]
model = "script"
delegates = ["far"]
"""


@pytest.mark.parametrize("keep", ["true", "false"])
def test_an_agent_with_a_single_turn_can_be_a_delegate(tmp_path: Path, keep: str) -> None:
    file = tmp_path / "agents.toml"
    file.write_text(f"{_BOSS}delegation = {{ keep = {keep} }}\n")
    endpoints = Echo(capabilities=REMOTE_STATELESS_TEXT).backends
    assert load_catalog(file, endpoints=endpoints).agents[AgentId("boss")].delegates == ("far",)


def test_a_missing_capability_of_a_delegate_is_an_error_at_load(tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    file.write_text(f'{_BOSS}background = ["agent_run_far"]\n')
    with pytest.raises(ConfigurationError) as refused:
        load_catalog(file, endpoints=Echo(capabilities=REMOTE_STATELESS_TEXT).backends)
    [line] = str(refused.value).splitlines()
    assert "agents.boss.delegates[0]: agent 'far' backend does not support: continuation" in line
    assert AgentId("boss") in load_catalog(file, endpoints=Echo().backends).agents


def test_a_hand_off_to_a_remote_agent_is_refused_at_load(tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    file.write_text(f'{_BOSS}handoffs = ["far"]\n')
    with pytest.raises(ConfigurationError) as refused:
        load_catalog(file, endpoints=Echo().backends)
    assert str(refused.value) == (
        f"{file}: agents.boss.handoffs[0]: agent 'far' is executed by a remote server and can't take"
        " over a run; name it in delegates instead"
    )
