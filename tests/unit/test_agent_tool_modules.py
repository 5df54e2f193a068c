"""Tool modules beside an agents file: which are found, and the error for one that can't be used."""

import re
import sys
from pathlib import Path

import pytest

from app.agents.catalog import load_catalog
from app.tools.functions.decorator import FunctionTool
from tests.support.agents_files import AGENT, MODELS, TOOLS, load, problems


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("\n1 / 0", r"ZeroDivisionError: division by zero \(broken\.py, line 2\)"),
        ("def x(:", r"SyntaxError: .*line 1"),
        ("raise SystemExit(1)", r"SystemExit: 1"),
        (
            "from holdfast import tool\n@tool\ndef f(*a): ...",
            r"tool 'f': .*can't be given by name.*\(broken\.py, line 2\)",
        ),
    ],
)
def test_an_import_error_names_its_reason_and_its_line(
    folder: Path, source: str, sentence: str
) -> None:
    found = problems(folder, MODELS + AGENT + '[tools]\nmodules = ["broken"]', broken=source)
    assert len(found) == 1
    file = re.escape(str(folder / "broken.py"))
    assert re.match(rf"tools\.modules\[0\]: {file} can't be imported: {sentence}", found[0])
    assert found[0].endswith("correct it there")


def test_a_missing_package_is_named_with_the_command_that_installs_it(folder: Path) -> None:
    source = "import nothing_of_that_name.below"
    [found] = problems(folder, MODELS + AGENT + '[tools]\nmodules = ["broken"]', broken=source)
    assert (
        "No module named 'nothing_of_that_name' (broken.py, line 1); install the package" in found
    )
    assert found.endswith(f"then run: holdfast install {folder}")


@pytest.mark.parametrize(
    ("module", "requirements", "sentence"),
    [
        (
            "no_such_one",
            "no.such-one>=2  # ours",
            "{file} names 'no.such-one', but it isn't installed: run: holdfast install {folder}",
        ),
        (
            "other_name",
            "-r more.txt\n./a.whl\nno_such_one\npytest",
            "{file} names 'no_such_one', which isn't installed: run: holdfast install {folder}; if none of "
            "them has 'other_name', name the package that has it there first",
        ),
        (
            "pytest_xdist",
            "pytest-xdist",
            "'pytest-xdist' is installed and has no module 'pytest_xdist': import 'xdist' instead, or name "
            "another package in {file}",
        ),
        (
            "no_such_one",
            "no_such_one; python_version < '3'\npytest",
            "install the package that has 'no_such_one': name it in {file}, then run: holdfast install {folder}",
        ),
        (
            "pytest.no_such_part",
            "pytest",
            "the installed 'pytest' has no 'pytest.no_such_part': correct the import, or require another version "
            "in {file}, then run: holdfast install {folder}",
        ),
    ],
)
@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_a_missing_package_that_is_required_is_not_to_be_required_again(
    folder: Path, name: str, module: str, requirements: str, sentence: str
) -> None:
    file = folder / name
    is_toml = name == "pyproject.toml"
    lines = requirements.splitlines()
    file.write_text(f"[project]\ndependencies = {lines}" if is_toml else requirements)
    text = MODELS + AGENT + '[tools]\nmodules = ["broken"]'
    [found] = problems(folder, text, broken=f"import {module}")
    assert found.endswith(f"; {sentence.format(file=file, folder=folder)}")


def test_a_module_without_tools_is_a_problem(folder: Path) -> None:
    found = problems(folder, MODELS + AGENT + '[tools]\nmodules = ["empty"]', empty="x = 1")
    assert found == [
        "tools.modules[0]: module 'empty' defines no tool; decorate a function with @tool"
        " (from holdfast import tool)"
    ]


def test_two_tools_of_one_name_are_a_problem(folder: Path) -> None:
    text = MODELS + AGENT + '[tools]\nmodules = ["my_tools", "others"]'
    found = problems(folder, text, others=TOOLS.replace("look", "peek"))
    assert found == [
        "tools.modules[1]: module 'others' defines a tool 'add', and so does 'my_tools';"
        ' rename one: @tool(name="…")'
    ]


def test_one_tool_seen_in_two_modules_is_one_tool(folder: Path) -> None:
    text = MODELS + AGENT + '[tools]\nmodules = ["my_tools", "others"]'
    assert set(load(folder, text, others="from my_tools import add").tools) == {"add", "look"}


def test_packages_and_neighbours_can_be_imported(folder: Path) -> None:
    catalog = load(
        folder,
        MODELS + AGENT + '[tools]\nmodules = ["kit.sub", "kit", "spaced.deep"]',
        **{
            "kit/__init__": TOOLS.replace("add", "kit_add").replace("look", "kit_look"),
            "kit/sub": """
            from holdfast import tool
            from neighbour import WORD
            from .names import NAME

            @tool(name=NAME)
            def say() -> str:
                from neighbour import WORD as again
                return WORD + again
            """,
            "kit/names": 'NAME = "named"',
            "neighbour": 'WORD = "hello"',
            "spaced/deep": TOOLS,
        },
    )
    assert set(catalog.tools) == {"named", "kit_add", "kit_look", "add", "look"}
    named = catalog.tools["named"]
    assert isinstance(named, FunctionTool)
    assert named() == "hellohello"


def test_loading_does_not_change_the_search_path(folder: Path) -> None:
    before = list(sys.path)
    load(folder, MODELS + AGENT + '[tools]\nmodules = ["my_tools"]')
    assert sys.path == before
    problems(folder, MODELS + AGENT + '[tools]\nmodules = ["broken"]', broken="1 / 0")
    assert sys.path == before


def test_the_same_name_in_another_folder_is_another_module(tmp_path: Path) -> None:
    found = []
    for word in ("one", "two"):
        folder = tmp_path / word
        folder.mkdir()
        catalog = load(
            folder,
            MODELS + AGENT + '[tools]\nmodules = ["same"]',
            same=f"from neighbour import tool\n@tool\ndef say_{word}(): ...",
            neighbour="from holdfast import tool",
        )
        found.append(list(catalog.tools))
    assert found == [["say_one"], ["say_two"]]


def test_a_folder_may_have_several_paths_and_symlinked_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data", "mounted"):
        (tmp_path / name).mkdir()
    (tmp_path / "also_mounted").symlink_to(tmp_path / "mounted")
    for name, text in {
        "linked_tools.py": TOOLS,
        "agents.toml": MODELS + AGENT + '[tools]\nmodules = ["linked_tools"]',
    }.items():
        (tmp_path / "data" / name).write_text(text)
        (tmp_path / "mounted" / name).symlink_to(tmp_path / "data" / name)
    monkeypatch.syspath_prepend(str(tmp_path / "also_mounted"))
    assert load_catalog(tmp_path / "mounted" / "agents.toml").tools
    assert load_catalog(tmp_path / "also_mounted" / "agents.toml").tools


def test_a_package_app_beside_the_file_breaks_nothing(folder: Path) -> None:
    catalog = load(
        folder,
        MODELS + AGENT + '[tools]\nmodules = ["my_tools"]',
        **{"app/__init__": "", "app/domain": "raise SystemExit", "app/payments": ""},
    )
    assert set(catalog.tools) == {"add", "look"}


@pytest.mark.parametrize("line", ["from app.payments import pay", "from app import payments"])
def test_a_tool_that_imports_a_user_package_app_gets_an_error_with_the_remedy(
    folder: Path, line: str
) -> None:
    found = problems(
        folder,
        MODELS + AGENT + '[tools]\nmodules = ["paying"]',
        **{"app/__init__": "", "app/payments": "", "paying": line},
    )
    [sentence] = found
    assert sentence.startswith(f"tools.modules[0]: {folder / 'paying.py'} can't be imported: ")
    assert "(paying.py, line 1); 'app' is Holdfast's own package here" in sentence
    assert sentence.endswith(f"give {folder / 'app'} another name, and import it under that")


def test_a_tool_module_inside_a_user_package_app_gets_an_error_with_the_remedy(
    folder: Path,
) -> None:
    text = MODELS + AGENT + '[tools]\nmodules = ["app.paying"]'
    found = problems(folder, text, **{"app/__init__": "", "app/paying": TOOLS})
    assert found[0].startswith("tools.modules[0]: the name 'app' belongs to another module (")
    assert found[0].endswith("rename this one")


@pytest.mark.parametrize("taken", ["json", "pytest", "sys"])
def test_a_module_named_like_an_imported_one_is_a_problem(folder: Path, taken: str) -> None:
    module = sys.modules[taken]
    text = MODELS + AGENT + f'[tools]\nmodules = ["{taken}"]'
    found = problems(folder, text, **{taken: TOOLS})
    assert found[0].startswith(f"tools.modules[0]: the name {taken!r} belongs to another module (")
    assert found[0].endswith("rename this one")
    assert sys.modules[taken] is module
