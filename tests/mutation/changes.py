"""Which one-token changes a module offers, and a sample of them that a seed decides."""

import io
import random
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.ignored import Position, spans_without_behaviour

_OPERATORS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "+=": "-=",
    "-=": "+=",
}
_WORDS = {
    "and": "or",
    "or": "and",
    "not": "",
    "True": "False",
    "False": "True",
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "break": "continue",
    "continue": "break",
}
_CALLS = frozenset({"min", "max", "any", "all"})


@dataclass(frozen=True, slots=True)
class Change:
    """One token of one module, and its replacement."""

    module: Path
    line: int
    column: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.column] + self.new + line[self.column + len(self.old) :]
        return "".join(lines)

    def __str__(self) -> str:
        return f"{self.module}:{self.line}:{self.column}: {self.old!r} → {self.new!r}"


def sample(root: Path, packages: list[str], count: int, seed: int) -> list[Change]:
    """`count` changes per package at most, drawn evenly over all tokens that can be changed."""
    draw = random.Random(seed)
    drawn: list[Change] = []
    for package in packages:
        offered = offered_by(root, package)
        drawn.extend(draw.sample(offered, min(count, len(offered))))
    return drawn


def offered_by(root: Path, package: str) -> list[Change]:
    """Every change of a package's modules."""
    return [
        change
        for path in sorted((root / "app" / package).rglob("*.py"))
        for change in changes_of(path.relative_to(root), path.read_text())
    ]


def changes_of(module: Path, source: str) -> Iterator[Change]:
    """All changes of a module, except in parts that have no behaviour."""
    ignored = spans_without_behaviour(source)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        at: Position = token.start
        new = _replacement(before, token, after)
        if new is not None and not any(begin <= at < end for begin, end in ignored):
            yield Change(module, *at, token.string, new)


def _replacement(
    before: tokenize.TokenInfo, token: tokenize.TokenInfo, after: tokenize.TokenInfo
) -> str | None:
    text = token.string
    if token.type == tokenize.OP:
        is_unary = before.type == tokenize.OP and before.string not in (")", "]", "}")
        return None if is_unary else _OPERATORS.get(text)
    if token.type == tokenize.NUMBER and text.isdigit():
        return str(int(text) + 1)
    if token.type != tokenize.NAME:
        return None
    if text in _CALLS and (after.string != "(" or before.string in (".", "def")):
        return None
    if text == "is":
        return "is not" if after.string != "not" else None
    if text == "not" and before.string == "is":
        return ""
    if text in ("not", "in") and "in" in (after.string, text):
        return None if before.string == "for" or text == "in" else ""
    return _WORDS.get(text)
