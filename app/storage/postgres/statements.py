"""Compiles SQLAlchemy statements to SQL text for asyncpg, each once.

A statement that is built for each call is found in a cache by its structure. Finding it costs five times as much
as executing its text, so a frequent statement is a constant: `prepared(…)` compiles it at its first use.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct
from sqlalchemy import Dialect, Executable, TextClause, Uuid
from sqlalchemy.dialects.postgresql.asyncpg import PGCompiler_asyncpg, PGDialect_asyncpg
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.util import LRUCache

Parameters: TypeAlias = Mapping[str, Any]
Encoder: TypeAlias = Callable[[Any], Any]
Encoders: TypeAlias = Sequence[tuple[str, Encoder | None]]

CACHED_STATEMENTS = 500
_RETURNS_ROWS = ("SELECT", "WITH")


class Query(Struct, frozen=True):
    """SQL text, its arguments in order, and whether it returns rows."""

    text: str
    arguments: Sequence[Any]
    returns_rows: bool


class _ConstantsInText(PGCompiler_asyncpg):
    """Writes values that belong to the statement into its text, so that partial indexes match them.

    Only parameters that the caller names are bound.
    """

    def visit_bindparam(self, bindparam: Any, *args: Any, **options: Any) -> str:
        if bindparam.unique and _is_constant(bindparam.value):
            options["literal_binds"] = True
        visit: Callable[..., str] = super().visit_bindparam
        return visit(bindparam, *args, **options)


def _is_constant(value: object) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(one, str | int) for one in value)
    return isinstance(value, str | int)


class _ConstantsDialect(PGDialect_asyncpg):
    statement_compiler = _ConstantsInText
    supports_statement_cache = True


_DIALECT: Dialect = PGDialect_asyncpg()  # type: ignore[no-untyped-call]
_CONSTANTS_DIALECT: Dialect = _ConstantsDialect()  # type: ignore[no-untyped-call]


class Prepared:
    """A statement that is compiled at its first use. Its parameters are those that it names with `bindparam`."""

    __slots__ = ("_encoders", "_returns_rows", "_statement", "_text")

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._text = ""
        self._encoders: Encoders = ()
        self._returns_rows = True

    def query(self, parameters: Parameters) -> Query:
        if not self._text:
            self._compile()
        arguments = [
            parameters[name] if encode is None else encode(parameters[name])
            for name, encode in self._encoders
        ]
        return Query(self._text, arguments, self._returns_rows)

    def _compile(self) -> None:
        compiled: SQLCompiler = self._statement.compile(dialect=_CONSTANTS_DIALECT)  # type: ignore[attr-defined]
        self._encoders = _encoders_of(compiled)
        self._returns_rows = _returns_rows(self._statement)
        self._text = compiled.string


def prepared(statement: Executable) -> Prepared:
    """A constant statement. Values that it doesn't name are written into its text."""
    return Prepared(statement)


_compiled: LRUCache[Any, Any] = LRUCache(CACHED_STATEMENTS)
_known: WeakKeyDictionary[SQLCompiler, tuple[Encoders, bool]] = WeakKeyDictionary()


def query_of(statement: Executable, parameters: Parameters) -> Query:
    """Compile a statement, or find its compiled form, and order its arguments."""
    # These are the calls of SQLAlchemy's own engine. Its public `compile` has no cache.
    compiled: Any
    compiled, extracted, collected, _ = statement._compile_w_cache(  # noqa: SLF001
        _DIALECT, compiled_cache=_compiled, column_keys=sorted(parameters)
    )
    values = compiled.construct_params(
        parameters,
        extracted_parameters=extracted,
        escape_names=False,
        _collected_params=collected,
    )
    known = _known.get(compiled)
    if known is None:
        known = _known[compiled] = (_encoders_of(compiled), _returns_rows(statement))
    text, (encoders, returns_rows) = compiled.string, known
    if compiled.post_compile_params or compiled.literal_execute_params:
        # The text has as many parameters as the values of `IN (…)`.
        expanded = compiled._process_parameters_for_postcompile(values)  # noqa: SLF001
        encode = {**dict(encoders), **expanded.processors}
        text, values = expanded.statement, expanded.parameters
        encoders = [(name, encode.get(name)) for name in expanded.positiontup or ()]
    arguments = [
        values[name] if encode is None else encode(values[name]) for name, encode in encoders
    ]
    return Query(text, arguments, returns_rows)


def _encoders_of(compiled: SQLCompiler) -> Encoders:
    types = {name: bind.type for bind, name in compiled.bind_names.items()}
    return [
        # The connection encodes the text of uuids.
        (name, None if isinstance(types[name], Uuid) else _encoder_of(compiled, name))
        for name in compiled.positiontup or ()
    ]


def _encoder_of(compiled: SQLCompiler, name: str) -> Encoder | None:
    encode = compiled._bind_processors.get(name)  # noqa: SLF001
    return encode if callable(encode) else None


def _returns_rows(statement: Executable) -> bool:
    if isinstance(statement, TextClause):
        text = statement.text.lstrip().upper()
        return text.startswith(_RETURNS_ROWS) or "RETURNING" in text
    if isinstance(statement, UpdateBase):
        # Not its public columns, which a copy of the statement would inherit.
        return bool(statement._returning)  # noqa: SLF001
    return True
