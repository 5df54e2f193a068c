"""Parameters of SQL have names, and rows are JSON with arrays for their long columns."""

import re
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pytest

from app.storage.postgres.named_parameters import LONG_TEXT, NamedSql, Rows

_COUNTED_BY_HAND = re.compile(r"\$(?:[4-9]|[1-9]\d)")


def test_names_become_numbers_in_the_order_of_their_first_use() -> None:
    statement = NamedSql("SELECT :b::text[], :a, :b::text[] WHERE x::int = :long_name::int")
    assert statement(a=1, b=["two"], long_name=3) == [
        "SELECT $1::text[], $2, $1::text[] WHERE x::int = $3::int",
        ["two"],
        1,
        3,
    ]


def test_colons_of_casts_and_of_json_are_no_parameters() -> None:
    text = """SELECT x::text, '{"a":"%s","b":%s}', 'mcp:' || y"""
    assert NamedSql(text)() == [text]


@pytest.mark.parametrize("values", [{}, {"a": 1, "b": 2}])
def test_a_missing_or_unknown_value_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="has the parameters"):
        NamedSql("SELECT :a")(**values)


def test_a_value_of_another_name_is_refused() -> None:
    with pytest.raises(KeyError, match="a"):
        NamedSql("SELECT :a")(b=1)


def test_rows_are_one_json_text() -> None:
    rows = Rows("e", {"id": "uuid", "n": "int", "name": "text"})
    assert rows.sql == (
        "(SELECT u.id, u.n, u.name FROM ROWS FROM (json_to_recordset(:e_rows::text::json) "
        "AS (id uuid, n int, name text)) AS u(id, n, name)) AS e"
    )
    ids = [UUID(int=1), str(UUID(int=2))]
    given = [{"id": one, "n": n, "name": None} for n, one in enumerate(ids)]
    assert rows.values(given) == {
        "e_rows": f'[{{"id":"{ids[0]}","n":0,"name":null}},{{"id":"{ids[1]}","n":1,"name":null}}]'
    }
    assert rows.values([]) == {"e_rows": "[]"}


def test_json_and_long_texts_are_an_array_for_each_column() -> None:
    columns = {"content": "jsonb", "body": LONG_TEXT, "name": "text", "ids": "uuid[]"}
    rows = Rows("m", columns, numbered="i")
    assert rows.sql == (
        "(SELECT u.content::jsonb AS content, u.body, u.name, u.ids::uuid[] AS ids, u.i "
        "FROM ROWS FROM (json_to_recordset(:m_rows::text::json) AS (name text, ids text), "
        "unnest(:m_content::text[]), unnest(:m_body::text[])) WITH ORDINALITY "
        "AS u(name, ids, content, body, i)) AS m"
    )
    given: list[Mapping[str, str | None]] = [
        {"name": "a", "content": "{}", "body": "b", "ids": "{}"},
        {"name": "b", "content": None, "body": "", "ids": "{a}"},
    ]
    assert rows.values(given) == {
        "m_rows": '[{"name":"a","ids":"{}"},{"name":"b","ids":"{a}"}]',
        "m_content": ["{}", None],
        "m_body": ["b", ""],
    }


def test_a_row_without_a_value_for_a_column_is_refused() -> None:
    with pytest.raises(KeyError, match="content"):
        Rows("m", {"id": "uuid", "content": "jsonb"}).values([{"id": "a"}])


def test_no_statement_has_more_than_three_numbered_parameters() -> None:
    root = Path(__file__).resolve().parents[2] / "app"
    counted = [
        str(source.relative_to(root))
        for source in sorted(root.rglob("*.py"))
        if _COUNTED_BY_HAND.search(source.read_text())
    ]
    assert counted == []
