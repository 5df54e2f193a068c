"""Parts of a module that tests can't notice a change of, because they have no behaviour."""

import ast
from collections.abc import Iterator

Position = tuple[int, int]
Span = tuple[Position, Position]
Part = ast.stmt | ast.expr | ast.arg | ast.keyword

_OF_NUMBERS = (ast.Constant, ast.Name, ast.BinOp, ast.operator, ast.expr_context)
_LOGGING = frozenset({"log", "_log", "telemetry"})


def spans_without_behaviour(source: str) -> list[Span]:
    """Start and end in the source, as `tokenize` counts lines and columns."""
    lines = source.splitlines()
    return [_span(part, lines) for part in _ignored(ast.parse(source))]


def _ignored(tree: ast.Module) -> Iterator[Part]:
    for statement in tree.body:
        yield from _tuning(statement)
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr():
                yield node
            case ast.Expr(value=ast.Constant()):
                yield node
            case ast.Expr() if _is_logging(node):
                yield node
            case ast.If(test=test, body=body, orelse=[]) if all(map(_is_logging, body)):
                yield test
            case ast.ClassDef():
                yield from node.decorator_list
            case ast.AnnAssign():
                yield node.annotation
            case ast.arg(annotation=ast.expr() as annotation):
                yield annotation
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _of_function(node)
            case ast.Call():
                yield from _of_call(node)
            case _:
                pass


def _tuning(statement: ast.stmt) -> Iterator[Part]:
    """The numbers of a module's constant: a test would only repeat them."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
            if all(isinstance(node, _OF_NUMBERS) for node in ast.walk(value)):
                yield value
        case _:
            pass


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Part]:
    if node.returns is not None:
        yield node.returns
    if all(
        isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in node.body
    ):
        yield node


def _of_call(node: ast.Call) -> Iterator[Part]:
    match node.func:
        case ast.Name(id="zip"):
            # `strict` raises for lengths that differ; where they are equal it does nothing.
            yield from (each for each in node.keywords if each.arg == "strict")
        case ast.Name(id="field"):
            # Only developers read the representation of a dataclass.
            yield from (each for each in node.keywords if each.arg == "repr")
        case ast.Name(id="TypeVar"):
            # Only type checkers read the variance.
            yield node
        case _:
            # Without the check, only a value that contains itself fails, by another exception.
            yield from (each for each in node.keywords if each.arg == "check_circular")


def _is_logging(node: ast.AST) -> bool:
    """Whether a statement only logs or counts."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    root: ast.AST = node.value
    while isinstance(root, ast.Call | ast.Attribute):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in _LOGGING


def _span(part: Part, lines: list[str]) -> Span:
    end_line, end_column = part.end_lineno, part.end_col_offset
    if end_line is None or end_column is None:
        raise ValueError("a parsed part has an end")
    return (
        _position(lines, part.lineno, part.col_offset),
        _position(lines, end_line, end_column),
    )


def _position(lines: list[str], line: int, offset: int) -> Position:
    """`ast` counts the bytes of a line, `tokenize` its characters."""
    return line, len(lines[line - 1].encode()[:offset].decode())
