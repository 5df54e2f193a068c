"""Which one-token changes a module offers, and a sample of them that a seed decides."""

import ast
import io
import random
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
_LOGGING = frozenset({"log", "_log", "telemetry"})


@dataclass(frozen=True, slots=True)
class Change:
    """One token of one module, and what stands there instead."""

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
        return f"{self.module}:{self.line}: {self.old!r} → {self.new!r}"


def sample(root: Path, packages: list[str], count: int, seed: int) -> list[Change]:
    """`count` changes per package at most, drawn evenly over all tokens that can be changed."""
    draw = random.Random(seed)
    drawn: list[Change] = []
    for package in packages:
        offered = [
            change
            for path in sorted((root / "app" / package).rglob("*.py"))
            for change in changes_of(path.relative_to(root), path.read_text())
        ]
        drawn.extend(draw.sample(offered, min(count, len(offered))))
    return drawn


def changes_of(module: Path, source: str) -> Iterator[Change]:
    """All changes of a module. Annotations, docstrings, logging and enum values are left alone."""
    ignored = _lines_without_behaviour(ast.parse(source))
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        line, column = token.start
        new = None if line in ignored else _replacement(before, token, after)
        if new is not None:
            yield Change(module, line, column, token.string, new)


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


def _lines_without_behaviour(tree: ast.Module) -> set[int]:
    ignored: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_logging(node):
            ignored.update(_lines(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            ignored.update(_lines(node))
        elif isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                ignored.update(_lines(decorator))
        elif isinstance(node, ast.AnnAssign) and node.value is None:
            ignored.update(_lines(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                if argument.annotation is not None:
                    ignored.update(_lines(argument.annotation))
    return ignored


def _is_logging(node: ast.AST) -> bool:
    """Whether a statement only logs or counts."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    root: ast.AST = node.value
    while isinstance(root, ast.Call | ast.Attribute):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in _LOGGING


def _lines(node: ast.AST) -> range:
    return range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
