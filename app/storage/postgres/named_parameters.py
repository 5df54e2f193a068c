"""SQL text whose parameters have names. It is compiled once to the numbers that asyncpg expects."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

Values: TypeAlias = Mapping[str, Any]

LONG_TEXT = "long text"
"""The type of a text column whose values may be long."""
_LONG_TYPES = frozenset({"jsonb", LONG_TEXT})
_encode = msgspec.json.Encoder().encode
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
    """Rows as parameters. `sql` is a table expression with these columns.

    Short columns are one JSON text: an array for each takes the driver and the server several times as long. JSON
    values and long texts are an array for each column, because within a JSON text they would be escaped.
    """

    __slots__ = ("_alias", "_long", "_short", "names", "sql")

    def __init__(self, alias: str, columns: Mapping[str, str], *, numbered: str = "") -> None:
        """`numbered` names one more column, which numbers the rows from 1 on."""
        self._alias = alias
        self._long = [name for name, type_ in columns.items() if type_ in _LONG_TYPES]
        self._short = [name for name in columns if name not in self._long]
        self.names = ", ".join(columns)
        short = ", ".join(f"{n} {_sent_type(columns[n])}" for n in self._short)
        functions = [
            f"json_to_recordset(:{alias}_rows::text::json) AS ({short})",
            *(f"unnest(:{alias}_{name}::text[])" for name in self._long),
        ]
        more = [numbered] if numbered else []
        read = [_read(name, type_) for name, type_ in columns.items()]
        self.sql = (
            f"(SELECT {', '.join([*read, *(f'u.{name}' for name in more)])} "
            f"FROM ROWS FROM ({', '.join(functions)}){' WITH ORDINALITY' if more else ''} "
            f"AS u({', '.join([*self._short, *self._long, *more])})) AS {alias}"
        )

    def values(self, rows: Iterable[Values]) -> dict[str, Any]:
        """The parameters for these rows. Each row has a value for each column."""
        known = [*rows]
        short = [{name: row[name] for name in self._short} for row in known]
        return {
            f"{self._alias}_rows": _encode(short).decode(),
            **{f"{self._alias}_{name}": [row[name] for row in known] for name in self._long},
        }


def _sent_type(type_: str) -> str:
    return "text" if type_.endswith("[]") else type_


def _read(name: str, type_: str) -> str:
    is_cast = type_ == "jsonb" or type_.endswith("[]")
    return f"u.{name}::{type_} AS {name}" if is_cast else f"u.{name}"
