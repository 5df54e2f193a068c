"""Parameters of SQL have names, and rows are arrays of their columns."""

import re
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

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
    rows = Rows("m", {"name": "text", "content": "jsonb", "ids": "uuid[]"}, numbered="i")
    assert rows.sql == (
        "(SELECT u.name, u.content::jsonb AS content, u.ids::uuid[] AS ids, u.i "
        "FROM unnest(:m_name::text[], :m_content::text[], :m_ids::text[]) WITH ORDINALITY "
        "AS u(name, content, ids, i)) AS m"
    )
    given: list[Mapping[str, str | None]] = [
        {"name": "a", "content": "{}", "ids": "{}"},
        {"name": "b", "content": None, "ids": "{a}"},
    ]
    assert rows.values(given) == {
        "m_name": ["a", "b"],
        "m_content": ["{}", None],
        "m_ids": ["{}", "{a}"],
    }
    assert rows.values([]) == {"m_name": [], "m_content": [], "m_ids": []}


def test_an_array_of_numbers_or_ids_is_one_text() -> None:
    rows = Rows("e", {"id": "uuid", "n": "int", "seq": "bigint", "step": "int"})
    assert rows.sql == (
        "(SELECT u.id, u.n, u.seq, u.step FROM unnest(:e_id::text::uuid[], :e_n::text::int[], "
        ":e_seq::text::bigint[], :e_step::text::int[]) AS u(id, n, seq, step)) AS e"
    )
    ids = [UUID(int=1), str(UUID(int=2))]
    given = [{"id": one, "n": n, "seq": -n, "step": None} for n, one in enumerate(ids)]
    assert rows.values(given) == {
        "e_id": f"{{{ids[0]},{ids[1]}}}",
        "e_n": "{0,1}",
        "e_seq": "{0,-1}",
        "e_step": "{NULL,NULL}",
    }
    assert rows.values([])["e_id"] == "{}"


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
