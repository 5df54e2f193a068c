"""Modules of tools beside an agents file: which are found, and what is told of one that can't be used."""

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
    ("source", "said"),
    [
        ("import nothing_of_that_name", r"ModuleNotFoundError.*\(broken\.py, line 1\)"),
        ("\n1 / 0", r"ZeroDivisionError: division by zero \(broken\.py, line 2\)"),
        ("def x(:", r"SyntaxError: .*line 1"),
        ("raise SystemExit(1)", r"SystemExit: 1"),
        (
            "from app.tools.functions.decorator import tool\n@tool\ndef f(*a): ...",
            r"tool 'f': .*can't be given by name.*\(broken\.py, line 2\)",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_says_why_and_in_which_line(
    folder: Path, source: str, said: str
) -> None:
    found = problems(folder, MODELS + AGENT + '[tools]\nmodules = ["broken"]', broken=source)
    assert len(found) == 1
    file = re.escape(str(folder / "broken.py"))
    assert re.match(rf"tools\.modules\[0\]: {file} can't be imported: {said}", found[0])
    assert found[0].endswith("correct it there")


def test_a_module_without_tools_is_a_problem(folder: Path) -> None:
    found = problems(folder, MODELS + AGENT + '[tools]\nmodules = ["empty"]', empty="x = 1")
    assert found == [
        "tools.modules[0]: module 'empty' defines no tool; decorate a function with @tool"
        " (from app.tools.functions.decorator import tool)"
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
            from app.tools.functions.decorator import tool
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


def test_the_search_path_stays_as_it_was(folder: Path) -> None:
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
            neighbour="from app.tools.functions.decorator import tool",
        )
        found.append(list(catalog.tools))
    assert found == [["say_one"], ["say_two"]]


def test_a_folder_may_be_known_by_several_paths_and_its_files_be_links(
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


@pytest.mark.parametrize("taken", ["json", "pytest", "sys"])
def test_a_name_that_python_knows_already_is_a_problem(folder: Path, taken: str) -> None:
    module = sys.modules[taken]
    text = MODELS + AGENT + f'[tools]\nmodules = ["{taken}"]'
    found = problems(folder, text, **{taken: TOOLS})
    assert found[0].startswith(f"tools.modules[0]: the name {taken!r} belongs to another module (")
    assert found[0].endswith("rename this one")
    assert sys.modules[taken] is module
