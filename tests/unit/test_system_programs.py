"""The system tier names each missing program with its package, and fails; it never skips."""

from collections.abc import Callable

import pytest

from tests.system import programs


def all_but(*lacking: str) -> Callable[[str], str | None]:
    return lambda name: None if name in lacking else f"/usr/bin/{name}"


def test_a_missing_program_is_named_with_its_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main([], all_but("node", "nginx")) == 1
    printed = capsys.readouterr().err
    assert "need nginx, node," in printed
    assert printed.endswith("apt-get install --no-install-recommends nginx nodejs\n")


def test_without_a_missing_program_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main([], all_but(), lambda: True) == 0
    assert capsys.readouterr().err == ""


def test_a_missing_right_to_mount_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs.main([], all_but(), lambda: False) == 1
    printed = capsys.readouterr().err
    assert "doesn't let them mount" in printed
    assert "Run them as root" in printed


def test_with_install_only_the_package_names_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert programs.main(["--packages"], all_but("pgbouncer", "node")) == 0
    assert capsys.readouterr().out == "nodejs pgbouncer\n"
