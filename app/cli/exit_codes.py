"""Exit codes, and how a command ends with an error."""

from enum import IntEnum
from typing import NoReturn

import typer


class ExitCode(IntEnum):
    """2 is left out, because it means a wrong command line."""

    SUCCEEDED = 0
    FAILED = 1
    BUDGET_EXCEEDED = 3
    BLOCKED = 4
    CANCELLED = 5
    WAITING = 6
    REFUSED = 7
    INTERRUPTED = 130


def exit_with(sentence: str, code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """Print the sentence to stderr and exit."""
    typer.echo(f"holdfast: {sentence}", err=True)
    raise SystemExit(code)
