"""The deployment files, without Docker: what they say is parsed, what they run is run."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import holdfast
from tests.support.servers import serving, working

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


def test_the_image_runs_the_command_line_as_nobody_special() -> None:
    text = dockerfile()
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, re.M)[0]) == ["holdfast"]
    assert json.loads(re.findall(r"^CMD (.*)$", text, re.M)[0]) == ["serve"]
    assert re.findall(r"^USER (.*)$", text, re.M) == ["holdfast"]
    assert "--extra embedded" not in text
    for source in re.findall(r"^COPY (?!--from)(.*) \./?\S*$", text, re.M):
        for name in source.split():
            assert (ROOT / name).exists(), name


def test_the_image_leaves_the_embedded_postgres_out() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not any("pgserver" in one for one in project["dependencies"])


def test_compose_migrates_before_anything_is_served() -> None:
    services = compose()["services"]
    for name in ("api", "worker"):
        needs = services[name]["depends_on"]["migrate"]["condition"]
        assert needs == "service_completed_successfully"
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert all(port.startswith("127.0.0.1:") for port in services["api"]["ports"])


async def test_the_commands_of_compose_serve_a_run(postgres_url: str, tmp_path: Path) -> None:
    """migrate, then serve with the role api on an open address, then worker: one run through all."""
    services = compose()["services"]
    assert [services[name]["command"] for name in ("migrate", "api", "worker")] == [
        ["migrate"],
        ["serve"],
        ["worker"],
    ]
    made = await holdfast("keys", "new", "--subject", "me", "--scope", "admin")
    keys = tmp_path / "keys.toml"
    keys.write_text(made.out)
    key = made.err.splitlines()[0].rpartition(" ")[2]
    migrated = await holdfast("migrate", DATABASE_URL=postgres_url)
    assert migrated.code == 0, migrated.err
    role = services["api"]["environment"]["HOLDFAST_ROLE"]
    async with (
        serving(postgres_url, role=role, host="0.0.0.0", api_keys_file=keys) as server,
        working(postgres_url, api_keys_file=keys),
        server.client(key) as client,
    ):
        run = await client.start("demo", "hello")
        assert run["status"] == "created"
        assert (await client.settled(run["run_id"]))["outcome"] == "succeeded"
