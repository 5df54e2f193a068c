"""`holdfast install`: packages of tools and providers, installed for real into an environment of the test's own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.commands import HOLDFAST, OURS, holdfast
from tests.support.documents import ROOT

pytestmark = pytest.mark.anyio

TOOL = "from price_list import PRICE\n\nfrom holdfast import tool\n\n\n"
TOOL += '@tool\nasync def price() -> int:\n    """The price."""\n    return PRICE\n'
AGENTS = '[models.m]\nprovider = "scripted"\n[tools]\nmodules = ["tools"]\n[agents.a]\nmodel = "m"\ntools = ["price"]\n'
GOOGLE_CLOUD = '[models.m]\nprovider = "google-cloud"\nmodel = "gemini"\n[agents.a]\nmodel = "m"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shop"
    made.mkdir()
    (made / "agents.toml").write_text(AGENTS)
    (made / "tools.py").write_text(TOOL)
    return made


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter that finds this environment's packages, and installs into one of its own."""
    environment = tmp_path / "environment"
    done = subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", environment], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    [packages] = environment.glob("lib/python*/site-packages")
    [ours] = HOLDFAST.parent.parent.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(f"{ours}\n{ROOT}\n")
    return environment / "bin" / "python"


def wheel(folder: Path, *, requires: str = "") -> str:
    """A package with the module price_list, which no registry has."""
    name = "price_list-1.0-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: price-list\nVersion: 1.0\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    with ZipFile(folder / name, "w") as file:
        file.writestr("price_list.py", "PRICE = 7\n")
        file.writestr("price_list-1.0.dist-info/METADATA", metadata)
        file.writestr(
            "price_list-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(
            "price_list-1.0.dist-info/RECORD",
            "price_list.py,,\nprice_list-1.0.dist-info/METADATA,,\n"
            "price_list-1.0.dist-info/WHEEL,,\nprice_list-1.0.dist-info/RECORD,,\n",
        )
    return name


def command(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
    environment |= {
        "PATH": f"{HOLDFAST.parent}{os.pathsep}{environment['PATH']}",
        "UV_OFFLINE": "1",
    }
    return subprocess.run(
        [python, "-m", "holdfast", *words], env=environment, capture_output=True, text=True
    )


def imported(python: Path) -> bool:
    return subprocess.run([python, "-c", "import price_list"], capture_output=True).returncode == 0


async def test_a_missing_package_is_named_with_the_command_that_installs_it(folder: Path) -> None:
    failed = await holdfast("serve", "--agents", str(folder), "--port", "0")
    assert failed.code == 1
    assert "No module named 'price_list' (tools.py, line 1)" in failed.err
    assert f"name it in {folder / 'requirements.txt'}" in failed.err
    assert f"holdfast install {folder}" in failed.err


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_the_requirements_of_a_folder_are_installed(folder: Path, python: Path, name: str) -> None:
    file = wheel(folder)
    address = f"price-list @ {(folder / file).as_uri()}"
    text = (
        f"./{file}\n" if name == "requirements.txt" else f'project.dependencies = ["{address}"]\n'
    )
    (folder / name).write_text(text)
    assert not imported(python)
    done = command(python, "install", str(folder))
    assert done.returncode == 0, done.stderr
    assert imported(python)
    checked = command(python, "doctor", "--agents", str(folder))
    assert "ok       agents: a\n" in checked.stdout


def test_a_package_that_contradicts_holdfast_is_not_installed(folder: Path, python: Path) -> None:
    (folder / "requirements.txt").write_text(f"./{wheel(folder, requires='pydantic<2')}\n")
    refused = command(python, "install", str(folder))
    assert refused.returncode == 1
    assert "pydantic" in refused.stderr
    assert "The packages weren't installed; the reason is above." in refused.stderr
    assert not imported(python)


async def test_a_folder_that_requires_nothing_is_named(folder: Path) -> None:
    refused = await holdfast("install", str(folder))
    assert (refused.code, refused.out) == (1, "")
    assert f"{folder} has neither a requirements.txt nor a pyproject.toml" in refused.err
    (folder / "pyproject.toml").write_text("[project]\ndependencies = 7\n")
    wrong = await holdfast("install", str(folder))
    assert "project.dependencies must be a list" in wrong.err
    (folder / "pyproject.toml").write_text("[project\n")
    unreadable = await holdfast("install", str(folder))
    assert "pyproject.toml can't be read" in unreadable.err
    unknown = await holdfast("install", "--provider", "acme")
    assert "no packages for a provider 'acme'" in unknown.err


def test_a_provider_whose_packages_are_missing_is_named_with_the_command(
    tmp_path: Path, python: Path
) -> None:
    """The modules of the SDK are hidden, as they are in an installation without it."""
    (tmp_path / "agents.toml").write_text(GOOGLE_CLOUD)
    [packages] = python.parent.parent.glob("lib/python*/site-packages")
    hidden = "import sys; sys.modules['google.genai'] = None; sys.modules['pydantic_ai'] = None"
    (packages / "hidden.pth").write_text(f"{hidden}\n")
    shown = command(python, "doctor", "--agents", str(tmp_path))
    assert shown.returncode == 1
    assert "run `holdfast install --provider google-cloud`" in shown.stdout
    assert shutil.which("uv", path=str(HOLDFAST.parent)) is not None
