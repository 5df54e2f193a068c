"""The public Python API: its names and signatures, and that users' code needs nothing else."""

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

ROOT = Path(__file__).parents[2]
SNAPSHOT = ROOT / "tests" / "snapshots" / "public_api.txt"
MODULES = ("holdfast", "holdfast.plugins", "holdfast.testing")


def test_the_public_names_and_signatures_match_the_snapshot() -> None:
    """Renew the snapshot with HOLDFAST_RENEW_SNAPSHOTS=1, and review the diff."""
    text = "".join(_described(import_module(name)) for name in MODULES)
    if os.environ.get("HOLDFAST_RENEW_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_listed_and_sorted(name: str) -> None:
    module = import_module(name)
    public = {each for each in vars(module) if not each.startswith("_")}
    public -= {"holdfast", "plugins", "testing"}  # the package and its submodules
    assert list(module.__all__) == sorted(public)


def test_the_code_of_users_imports_the_public_api_only() -> None:
    files = [
        *ROOT.glob("tests/*/agents/*.py"),
        *ROOT.glob("tests/journeys/*/**/*_tools.py"),
        *ROOT.glob("examples/**/*.py"),
        ROOT / "app/agents/demo/demo_tools.py",
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
    ]
    assert len(files) > 6
    for file in files:
        assert not re.findall(r"^\s*(?:from|import) app\b.*", file.read_text(), re.M), file


def test_the_public_api_has_types() -> None:
    assert (ROOT / "holdfast" / "py.typed").is_file()


# --- a project with a package `app` of its own ----------------------------------------------------


def _python(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project with a top-level package `app`."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("")
    (tmp_path / "app" / "payments.py").write_text("def pay(): return 'paid'\n")
    return tmp_path


def test_the_command_line_can_be_started_as_a_module(tmp_path: Path) -> None:
    found = _python("-m", "holdfast", "--help", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "serve" in found.stdout


def test_a_foreign_app_in_front_is_an_error_with_its_remedy(project: Path) -> None:
    found = _python("-c", "import holdfast", folder=project, PYTHONPATH=str(project))
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: Holdfast needs the package name 'app'")
    assert str(project / "app") in last
    assert "Rename that package" in last


def test_the_command_line_reports_a_foreign_app_without_a_traceback(project: Path) -> None:
    command = str(Path(sys.executable).with_name("holdfast"))
    found = _python(command, "--help", folder=project, PYTHONPATH=str(project))
    assert found.returncode == 1
    assert found.stderr.startswith("holdfast: Holdfast needs the package name 'app'")
    assert len(found.stderr.splitlines()) == 1


def test_a_module_started_beside_a_foreign_app_says_what_to_do(project: Path) -> None:
    found = _python("-m", "holdfast", "--help", folder=project)
    assert found.returncode == 1
    assert found.stderr.startswith("holdfast: Holdfast needs the package name 'app'")
    assert str(project / "app") in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_the_command_line_works_beside_a_foreign_app(project: Path) -> None:
    """The folder that a command is started in isn't on its search path."""
    command = str(Path(sys.executable).with_name("holdfast"))
    found = _python(command, "--help", folder=project)
    assert found.returncode == 0, found.stderr
    assert "serve" in found.stdout


def test_a_foreign_app_works_where_nothing_imports_holdfast(project: Path) -> None:
    """Holdfast is installed, and shadows no package before it in the search path."""
    code = "from app.payments import pay; print(pay())"
    found = _python("-c", code, folder=project, PYTHONPATH=str(project))
    assert found.stdout == "paid\n", found.stderr


def test_pytest_in_a_project_with_a_foreign_app_names_the_remedy(project: Path) -> None:
    (project / "test_agent.py").write_text("from holdfast import tool\n\n\ndef test_it(): ...\n")
    (project / "pytest.ini").write_text("[pytest]\n")
    found = _python("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=project)
    assert found.returncode != 0
    assert "Holdfast needs the package name 'app'" in found.stdout


def test_pytest_in_a_folder_of_its_own_works_in_such_a_project(project: Path) -> None:
    folder = project / "agent_tests"
    folder.mkdir()
    (folder / "test_agent.py").write_text(
        "from holdfast.testing import run_agent\n\n\ndef test_it(): ...\n"
    )
    (project / "pytest.ini").write_text("[pytest]\n")
    found = _python("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=folder)
    assert found.returncode == 0, found.stdout
    assert "1 passed" in found.stdout


# --- describing -----------------------------------------------------------------------------------


def _described(module: ModuleType) -> str:
    lines = [f"== {module.__name__}"]
    for name in module.__all__:
        lines += _lines_of(name, getattr(module, name))
    return "\n".join(lines) + "\n"


def _lines_of(name: str, value: Any) -> list[str]:
    """The signature as in the source, so that moved modules and Python versions change no line."""
    if inspect.isfunction(value):
        return [f"{name}{_signature(_parsed(value))}"]
    if not inspect.isclass(value):
        return [
            f"{name} = {' | '.join(getattr(each, '__name__', '…') for each in get_args(value))}"
        ]
    if issubclass(value, Enum):
        return [f"{name}: {', '.join(str(member.value) for member in value)}"]
    own = [base for base in value.__mro__ if base.__module__.startswith(("app.", "holdfast"))]
    members: dict[str, str] = {}
    for base in reversed(own):
        for node in _parsed(base).body:
            members |= _member(node)
    return [f"class {name}", *(f"    {line}" for line in members.values())]


def _parsed(value: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def _member(node: ast.stmt) -> dict[str, str]:
    """A field or a method, by its name; private ones are left out, except for the constructor."""
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)):
            line = ast.unparse(node)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            is_property = any(ast.unparse(one) == "property" for one in node.decorator_list)
            line = f"{name}: property" if is_property else f"{name}{_signature(node)}"
        case _:
            return {}
    is_public = not name.startswith("_") or name == "__init__"
    return {name: line} if is_public else {}


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"({ast.unparse(node.args)}){returns}"
