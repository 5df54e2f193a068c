"""The deployment files, without a container engine: what they say is parsed, what they run is run."""

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
import pytest

from tests.support.commands import OURS, holdfast
from tests.support.containers import ROOT, compose, image_environment, services, stages
from tests.support.streams import Client
from tests.support.terminals import Command, started

pytestmark = pytest.mark.anyio

PORT = re.compile(r"Holdfast serves on http://127\.0\.0\.1:(\d+)")


# --- the image ------------------------------------------------------------------------------------


def test_the_image_runs_the_command_line_as_nobody_special() -> None:
    image = {one.name: one for one in stages()[-1]}
    assert image["ENTRYPOINT"].rest.startswith("["), "the exec form, or SIGTERM ends at a shell"
    assert image["ENTRYPOINT"].words + image["CMD"].words == ["holdfast", "serve"]
    assert image["USER"].words == ["holdfast"]
    made = [one.words for one in stages()[-1] if one.name == "RUN"]
    assert made == [["useradd", "--system", "--uid", "10001", "--no-create-home", "holdfast"]]


def test_both_stages_have_the_same_slim_python() -> None:
    build, image = (stage[0].words[0] for stage in stages())
    assert build == image
    assert re.fullmatch(r"python:3\.\d+-slim", image)


def test_all_that_is_copied_is_there_and_let_through() -> None:
    ignored, *let_through = (ROOT / ".dockerignore").read_text().split()
    assert ignored == "*"
    copied = [one.words[:-1] for one in stages()[0] if one.name == "COPY"]
    names = [name for words in copied for name in words]
    assert names
    for name in names:
        assert (ROOT / name).exists()
        assert f"!{name}" in let_through


def test_the_image_is_the_lock_without_the_embedded_postgres() -> None:
    syncs = [one.rest for one in stages()[0] if "uv sync" in one.rest]
    assert syncs
    for sync in syncs:
        assert "--frozen" in sync
        assert "--no-default-groups" in sync
        assert re.findall(r"--extra (\S+)", sync) == ["nats"]
        assert "--all-extras" not in sync
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not any("pgserver" in one for one in project["dependencies"])


# --- compose --------------------------------------------------------------------------------------


def test_nothing_is_served_before_the_database_is_migrated() -> None:
    ours = services({})
    for name in ("api", "worker"):
        needed = ours[name]["depends_on"]["migrate"]
        assert needed == {"condition": "service_completed_successfully"}
    assert ours["migrate"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    assert ours["migrate"]["restart"] == "no"


def test_only_this_machine_reaches_it_and_only_with_a_key() -> None:
    ours = services({})
    assert [name for name in ours if "ports" in ours[name]] == ["api"]
    assert ours["api"]["ports"] == ["127.0.0.1:8000:8000"]
    secrets = compose()["secrets"]
    for name in ("api", "worker", "migrate"):
        [secret] = ours[name]["secrets"]
        assert ours[name]["environment"]["HOLDFAST_API_KEYS_FILE"] == f"/run/secrets/{secret}"
        assert secrets[secret] == {"file": "./keys.toml"}


def test_the_password_of_the_database_is_one_and_can_be_chosen() -> None:
    for environ, password in (({}, "holdfast"), ({"POSTGRES_PASSWORD": "other"}, "other")):
        ours = services(environ)
        made = ours["postgres"]["environment"]
        url = urlsplit(ours["api"]["environment"]["DATABASE_URL"])
        assert (url.username, url.password) == (made["POSTGRES_USER"], made["POSTGRES_PASSWORD"])
        assert (url.hostname, url.path) == ("postgres", f"/{made['POSTGRES_DB']}")
        assert url.password == password


def test_nats_is_there_for_those_who_ask_for_it() -> None:
    ours = services({"NATS_URL": "nats://nats:4222"})
    assert ours["nats"]["profiles"] == ["nats"]
    for name in ("api", "worker"):
        assert urlsplit(ours[name]["environment"]["NATS_URL"]).hostname == "nats"
        assert services({})[name]["environment"]["NATS_URL"] == ""


def test_who_stops_has_time_for_it() -> None:
    for name in ("api", "worker"):
        assert int(services({})[name]["stop_grace_period"].removesuffix("s")) > 10


async def test_the_services_do_a_run_together_and_stop_when_told(
    postgres_url: str, tmp_path: Path
) -> None:
    """Each with its own command and environment, but for where the database, the keys and the port are."""
    made = await holdfast("keys", "new", "--subject", "me", "--scope", "admin")
    [key] = re.findall(r"hf_\S+", made.err)
    (tmp_path / "keys.toml").write_text(made.out)
    places = {
        "DATABASE_URL": postgres_url,
        "HOLDFAST_API_KEYS_FILE": str(tmp_path / "keys.toml"),
        "HOLDFAST_PORT": "0",
    }
    async with _service("migrate", places) as migrate:
        assert await migrate.gone() == 0, migrate.log
    async with _service("api", places) as api, _service("worker", places) as worker:
        port = (await api.printed(PORT))[1]
        await worker.printed(re.compile("Worker of "))
        assert await _health_check(port) == 0
        async with Client(f"http://127.0.0.1:{port}", key) as client:
            run = await client.start("demo", "Hello.")
            assert run["status"] == "created", "the api executes nothing itself"
            assert (await client.settled(run["run_id"]))["outcome"] == "succeeded"
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as nobody:
            assert (await nobody.get("/v1/agents")).status_code == 401
        for process in (api, worker):
            process.terminate()
            assert await process.gone() == 0
        assert await _health_check(port) == 1


@asynccontextmanager
async def _service(name: str, places: dict[str, str]) -> AsyncIterator[Command]:
    service: dict[str, Any] = services({})[name]
    environment = image_environment() | service["environment"] | places
    async with started(*service["command"], **environment) as process:
        yield process


async def _health_check(port: str) -> int:
    [check] = [one.rest for one in stages()[-1] if one.name == "HEALTHCHECK"]
    python, *arguments = json.loads(check.partition("CMD ")[2])
    assert python == "python"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(OURS)},
            **image_environment(),
            "HOLDFAST_PORT": port,
        },
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()
