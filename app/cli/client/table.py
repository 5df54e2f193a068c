"""Lists on the terminal: a table for people, or one JSON object per line for programs."""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import typer

from app.cli.client.output import visible
from app.domain.json_values import compact

Item: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Mapping[str, Callable[[Item], str]]
"""The text of each column, by its heading."""
_GAP = "  "


def write_list(items: Iterable[Item], columns: Columns, *, as_json: bool, limit: int) -> None:
    """Write up to `limit` items. A line on stderr says if there are more."""
    remaining = iter(items)
    shown = list(islice(remaining, limit))
    if as_json:
        for item in shown:
            typer.echo(json.dumps(item))
    else:
        write_table(shown, columns)
    if next(remaining, None) is not None:
        typer.echo(f"There are more. Show them with --limit {limit * 5}.", err=True)


def write_table(items: Sequence[Item], columns: Columns) -> None:
    """Write aligned columns. A terminal gets lines that are cut at its width."""
    rows = [list(columns), *([_cell(text(item)) for text in columns.values()] for item in items)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        cells = (f"{cell:{size}}" for cell, size in zip(row, widths, strict=True))
        typer.echo(_cut(_GAP.join(cells).rstrip(), width))


def short(value: Any, max_length: int = 60) -> str:
    """A value in a few words, for the last column of a table."""
    text = value if isinstance(value, str) else compact(value)
    return text if len(text) <= max_length else f"{text[:max_length]}…"


def moment(time: str | None) -> str:
    """A time of the API to the second."""
    return "" if time is None else time[:19].replace("T", " ")


def _cell(text: str) -> str:
    return visible(text.replace("\n", " ").replace("\t", " "))


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"
