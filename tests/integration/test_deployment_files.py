"""The deployment files, without a container engine: parsed, and their commands executed."""

import asyncio
import json
import os
import re
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jsonschema_rs
import pytest
import yaml

from tests.support.commands import OURS, holdfast
from tests.support.containers import ROOT, compose, image_environment, services, stages
from tests.support.streams import Client
from tests.support.terminals import Command, started

pytestmark = pytest.mark.anyio

SET = {"POSTGRES_PASSWORD": "of-a-test"}
COMPOSE_SCHEMA = Path(__file__).with_name("schemas") / "compose_spec.json"
PORT = re.compile(r"Holdfast serves on http://127\.0\.0\.1:(\d+)")
HEALTH_PORT = re.compile(r"health +http://127\.0\.0\.1:(\d+)/health")


# --- the image ------------------------------------------------------------------------------------


def test_the_image_runs_the_command_line_as_an_unprivileged_user() -> None:
    image = {one.name: one for one in stages()[-1]}
    assert image["ENTRYPOINT"].arguments.startswith("["), (
        "the exec form, or SIGTERM ends at a shell"
    )
    assert image["ENTRYPOINT"].words + image["CMD"].words == ["holdfast", "serve"]
    assert image["USER"].words == ["holdfast"]
    made = [one.words for one in stages()[-1] if one.name == "RUN"]
    assert made == [["useradd", "--system", "--uid", "10001", "--no-create-home", "holdfast"]]


def test_both_stages_have_the_same_slim_python() -> None:
    build, image = (stage[0].words[0] for stage in stages()[-2:])
    assert build == image
    assert re.fullmatch(r"python:3\.\d+-slim", image)


def test_each_copied_file_exists_and_is_not_ignored() -> None:
    ignored, *let_through = (ROOT / ".dockerignore").read_text().split()
    assert ignored == "*"
    copied = [one.words[:-1] for stage in stages() for one in stage if one.name == "COPY"]
    names = [name for words in copied if not words[0].startswith("--from=") for name in words]
    assert names
    for name in names:
        assert (ROOT / name).exists()
        assert f"!{Path(name).parts[0]}" in let_through
        assert name not in let_through


def test_the_image_installs_the_lock_file_without_the_embedded_postgres() -> None:
    syncs = [one.arguments for one in stages()[-2] if "uv sync" in one.arguments]
    assert syncs
    for sync in syncs:
        assert "--frozen" in sync
        assert "--no-default-groups" in sync
        assert re.findall(r"--extra (\S+)", sync) == ["nats", "s3"]
        assert "--all-extras" not in sync
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not any("pgserver" in one for one in project["dependencies"])


# --- compose --------------------------------------------------------------------------------------


def test_no_service_starts_before_the_database_is_migrated() -> None:
    our_services = services(SET)
    for name in ("api", "worker"):
        needed = our_services[name]["depends_on"]["migrate"]
        assert needed == {"condition": "service_completed_successfully"}
    assert our_services["migrate"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    assert our_services["migrate"]["restart"] == "no"


def test_the_api_listens_on_this_machine_only_and_needs_a_key() -> None:
    our_services = services(SET)
    assert [name for name in our_services if "ports" in our_services[name]] == ["api"]
    assert our_services["api"]["ports"] == ["127.0.0.1:8000:8000"]
    secrets = compose()["secrets"]
    for name in ("api", "worker", "migrate"):
        [secret] = our_services[name]["secrets"]
        assert (
            our_services[name]["environment"]["HOLDFAST_API_KEYS_FILE"] == f"/run/secrets/{secret}"
        )
        assert secrets[secret] == {"file": "./keys.toml"}


def test_all_services_share_one_database_password_that_must_be_set() -> None:
    with pytest.raises(KeyError, match="POSTGRES_PASSWORD"):
        services({})
    our_services = services({"POSTGRES_PASSWORD": "other"})
    made = our_services["postgres"]["environment"]
    for name in ("migrate", "api", "worker"):
        url = urlsplit(our_services[name]["environment"]["DATABASE_URL"])
        assert (url.username, url.password) == (made["POSTGRES_USER"], made["POSTGRES_PASSWORD"])
        assert (url.hostname, url.path) == ("postgres", f"/{made['POSTGRES_DB']}")
        assert url.password == "other"


def test_the_file_is_valid_for_the_schema_of_compose() -> None:
    schema = json.loads(COMPOSE_SCHEMA.read_text())
    validator = jsonschema_rs.validator_for(schema)
    validator.validate(compose())
    wrong = {"services": {"api": {"image": "holdfast", "readonly": True}}}
    with pytest.raises(jsonschema_rs.ValidationError, match="readonly"):
        validator.validate(wrong)


def test_our_containers_write_nothing_but_tmp_and_have_no_capabilities() -> None:
    for name in ("migrate", "api", "worker"):
        service = services(SET)[name]
        assert service["read_only"] is True
        assert [one.partition(":")[0] for one in service["tmpfs"]] == ["/tmp"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_every_container_has_a_memory_limit() -> None:
    assert all(re.fullmatch(r"\d+[mg]", one["mem_limit"]) for one in services(SET).values())


def test_the_api_can_be_scaled_over_a_range_of_ports() -> None:
    """A fixed port, or a fixed name of the container, would let only one replica start."""
    our_services = services({**SET, "HOLDFAST_PORTS": "8000-8002"})
    assert our_services["api"]["ports"] == ["127.0.0.1:8000-8002:8000"]
    assert not any("container_name" in one for one in our_services.values())


def test_the_commented_lines_mount_a_folder_of_agents() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for line in ("HOLDFAST_AGENTS: /agents", "volumes: ["):
        assert text.count(f"  # {line}") == 1
        text = text.replace(f"  # {line}", f"  {line}")
    for name in ("migrate", "api", "worker"):
        service = yaml.safe_load(text)["services"][name]
        assert service["volumes"] == ["./agents:/agents:ro"]
    assert yaml.safe_load(text)["services"]["worker"]["environment"]["HOLDFAST_AGENTS"] == (
        "/agents/agents.toml"
    )


def test_nats_starts_only_with_its_profile() -> None:
    our_services = services({**SET, "NATS_URL": "nats://nats:4222"})
    assert our_services["nats"]["profiles"] == ["nats"]
    for name in ("api", "worker"):
        assert urlsplit(our_services[name]["environment"]["NATS_URL"]).hostname == "nats"
        assert services(SET)[name]["environment"]["NATS_URL"] == ""


def test_every_service_that_stays_has_a_health_check() -> None:
    [check] = [one.arguments for one in stages()[-1] if one.name == "HEALTHCHECK"]
    assert "app.cli.health_check" in check
    for name in ("api", "worker"):
        assert "healthcheck" not in services(SET)[name], "it would replace the image's"
    for name in ("postgres", "nats"):
        assert services(SET)[name]["healthcheck"]["test"][0] == "CMD"
    environment = image_environment()
    assert environment["HOLDFAST_PORT"] != environment["HOLDFAST_HEALTH_PORT"]


def test_stop_grace_period_is_longer_than_a_shutdown_takes() -> None:
    for name in ("api", "worker"):
        assert int(services(SET)[name]["stop_grace_period"].removesuffix("s")) > 10


async def test_the_services_execute_a_run_together_and_stop_on_sigterm(
    postgres_url: str, tmp_path: Path
) -> None:
    """Each service with its command and environment. Only database, keys file and port are replaced."""
    made = await holdfast("keys", "new", "--subject", "me", "--scope", "admin")
    [key] = re.findall(r"hf_\S+", made.err)
    (tmp_path / "keys.toml").write_text(made.out)
    environment_of_test = {
        "DATABASE_URL": postgres_url,
        "HOLDFAST_API_KEYS_FILE": str(tmp_path / "keys.toml"),
        "HOLDFAST_PORT": "0",
        "HOLDFAST_HEALTH_PORT": "0",
    }
    async with _service("migrate", environment_of_test) as migrate:
        assert await migrate.gone() == 0, migrate.log
    async with (
        _service("api", environment_of_test) as api,
        _service("worker", environment_of_test) as worker,
    ):
        port = (await api.printed(PORT))[1]
        health_port = (await worker.printed(HEALTH_PORT))[1]
        assert await _health_check(HOLDFAST_PORT=port) == 0
        assert await _health_check(HOLDFAST_HEALTH_PORT=health_port) == 0
        async with Client(f"http://127.0.0.1:{port}", key) as client:
            run = await client.start("demo", "Hello.")
            assert run["status"] == "created", "the api executes nothing itself"
            assert (await client.settled(run["id"]))["outcome"] == "succeeded"
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as without_key:
            assert (await without_key.get("/v1/agents")).status_code == 401
        for process in (api, worker):
            process.terminate()
            assert await process.gone() == 0
        assert await _health_check(HOLDFAST_PORT=port, HOLDFAST_HEALTH_PORT=health_port) == 1


@asynccontextmanager
async def _service(name: str, environment_of_test: dict[str, str]) -> AsyncIterator[Command]:
    service: dict[str, Any] = services(SET)[name]
    environment = image_environment() | service["environment"] | environment_of_test
    async with started(*service["command"], **environment) as process:
        yield process


async def _health_check(**ports: str) -> int:
    """The image's check with these ports. A port that isn't given is one where nothing listens."""
    [check] = [one.arguments for one in stages()[-1] if one.name == "HEALTHCHECK"]
    python, *arguments = json.loads(check.partition("CMD ")[2])
    assert python == "python"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
            **image_environment(),
            "HOLDFAST_PORT": "9",
            "HOLDFAST_HEALTH_PORT": "9",
            **ports,
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
