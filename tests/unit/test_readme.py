"""What the README says of settings and promises is what there is."""

import re
from pathlib import Path

from app.cli.environment import as_markdown

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_table_of_settings_is_that_of_the_code() -> None:
    written = README.partition("<!-- `holdfast settings --markdown` -->")[2]
    assert written.partition("<!-- end of settings -->")[0].strip() == as_markdown()


def test_every_promise_names_tests_that_are_there() -> None:
    rows = re.findall(r"^\| (I\d+) \|.*\| (.*) \|$", README, re.M)
    assert [number for number, _ in rows] == [f"I{count}" for count in range(1, 12)]
    sources = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    for number, breaks in rows:
        names = re.findall(r"`(test_\w+)`", breaks)
        assert names, number
        for name in names:
            assert re.search(rf"def {name}\b", sources), f"{number}: {name}"


def test_every_file_to_read_first_is_there() -> None:
    for name in re.findall(r"`(app/[\w/]+\.py)`", README):
        assert (ROOT / name).exists(), name
