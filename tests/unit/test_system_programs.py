"""The system tier names what it lacks, with the package to install, and fails; it never skips."""

from collections.abc import Callable

import pytest

from tests.system import programs


def all_but(*lacking: str) -> Callable[[str], str | None]:
    return lambda name: None if name in lacking else f"/usr/bin/{name}"


def test_what_is_missing_is_named_with_its_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main([], all_but("node", "nginx")) == 1
    said = capsys.readouterr().err
    assert "need nginx, node," in said
    assert said.endswith("apt-get install --no-install-recommends nginx nodejs\n")


def test_nothing_is_said_when_all_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main([], all_but(), lambda: True) == 0
    assert capsys.readouterr().err == ""


def test_it_is_said_when_no_disk_may_be_mounted(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main([], all_but(), lambda: False) == 1
    said = capsys.readouterr().err
    assert "doesn't let them mount" in said
    assert "Run them as root" in said


def test_whoever_installs_gets_the_packages_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main(["--packages"], all_but("pgbouncer", "node")) == 0
    assert capsys.readouterr().out == "nodejs pgbouncer\n"
