"""How a command ends: its exit code, and a sentence when it can't do what it was asked."""

from enum import IntEnum
from typing import NoReturn

import typer


class ExitCode(IntEnum):
    """2 is left out: it says that the command line itself was wrong."""

    SUCCEEDED = 0
    FAILED = 1
    BUDGET_EXCEEDED = 3
    BLOCKED = 4
    CANCELLED = 5
    WAITING = 6
    REFUSED = 7
    INTERRUPTED = 130


def exit_with(sentence: str, code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """Say why on stderr, and leave."""
    typer.echo(f"holdfast: {sentence}", err=True)
    raise SystemExit(code)
