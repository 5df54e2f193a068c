"""SQL text whose parameters have names. It is compiled once to the numbers that asyncpg expects."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Values: TypeAlias = Mapping[str, Any]

_WRITTEN = frozenset({"int", "bigint", "uuid"})
"""Types whose arrays are sent as one text."""
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


class NamedSql:
    """A constant statement. `:name` is a parameter, also where a cast follows: `:name::text[]`."""

    __slots__ = ("_names", "text")

    def __init__(self, text: str) -> None:
        self._names = list(dict.fromkeys(_PARAMETER.findall(text)))
        numbers = {name: number for number, name in enumerate(self._names, 1)}
        self.text = _PARAMETER.sub(lambda found: f"${numbers[found[1]]}", text)

    def __call__(self, **values: Any) -> list[Any]:
        """The text and its arguments in order, for `fetch` and `execute` of the driver."""
        if len(values) != len(self._names):
            raise TypeError(f"the statement has the parameters {self._names}, not {list(values)}")
        return [self.text, *[values[name] for name in self._names]]


class Rows:
    """Rows as parameters: an array for each column. `sql` is a table expression with these columns.

    JSON and arrays are sent as text and cast, because an array of arrays can't be unnested. An array of numbers
    or ids is one text: the driver takes several times as long to encode its elements.
    """

    __slots__ = ("_columns", "_written", "names", "sql")

    def __init__(self, alias: str, columns: Mapping[str, str], *, numbered: str = "") -> None:
        """`numbered` names one more column, which numbers the rows from 1 on."""
        self._columns = {name: f"{alias}_{name}" for name in columns}
        self.names = ", ".join(columns)
        sent = {name: "text" if _is_cast(type_) else type_ for name, type_ in columns.items()}
        self._written = {name for name, type_ in sent.items() if type_ in _WRITTEN}
        arrays = ", ".join(
            f":{alias}_{name}{'::text' if type_ in _WRITTEN else ''}::{type_}[]"
            for name, type_ in sent.items()
        )
        read = [f"u.{n}::{t} AS {n}" if _is_cast(t) else f"u.{n}" for n, t in columns.items()]
        named = [*columns, numbered] if numbered else [*columns]
        self.sql = (
            f"(SELECT {', '.join([*read, f'u.{numbered}'] if numbered else read)} "
            f"FROM unnest({arrays}){' WITH ORDINALITY' if numbered else ''} "
            f"AS u({', '.join(named)})) AS {alias}"
        )

    def values(self, rows: Iterable[Values]) -> dict[str, Any]:
        """The parameters for these rows. Each row has a value for each column."""
        known = [*rows]
        return {
            parameter: _array_text(known, name)
            if name in self._written
            else [row[name] for row in known]
            for name, parameter in self._columns.items()
        }


def _array_text(rows: Sequence[Values], name: str) -> str:
    """An array of numbers or ids as Postgres writes it. None of them needs quotes."""
    return (
        f"{{{','.join(['NULL' if (value := row[name]) is None else str(value) for row in rows])}}}"
    )


def _is_cast(type_: str) -> bool:
    return type_ == "jsonb" or type_.endswith("[]")
