"""Parameters of SQL have names, and rows are arrays of their columns."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.storage.postgres.named_parameters import NamedSql, Rows

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


def test_rows_are_an_array_for_each_column() -> None:
    rows = Rows("m", {"id": "uuid", "content": "jsonb", "ids": "uuid[]"}, numbered="i")
    assert rows.sql == (
        "(SELECT u.id, u.content::jsonb AS content, u.ids::uuid[] AS ids, u.i "
        "FROM unnest(:m_id::uuid[], :m_content::text[], :m_ids::text[]) WITH ORDINALITY "
        "AS u(id, content, ids, i)) AS m"
    )
    given: list[Mapping[str, str | None]] = [
        {"id": "a", "content": "{}", "ids": "{}"},
        {"id": "b", "content": None, "ids": "{a}"},
    ]
    assert rows.values(given) == {
        "m_id": ["a", "b"],
        "m_content": ["{}", None],
        "m_ids": ["{}", "{a}"],
    }
    assert rows.values([]) == {"m_id": [], "m_content": [], "m_ids": []}


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
