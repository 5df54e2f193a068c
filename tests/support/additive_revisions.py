"""Which statements of a revision the version before could fail on.

A revision is rendered as SQL by alembic, without a database. A statement counts as harmful unless it is known to be
harmless.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType

from alembic.migration import MigrationContext
from alembic.operations import Operations

from app.storage.tables import metadata

_NAME = r'"?[\w.]+"?'
_TABLE = re.compile(rf"CREATE TABLE (?P<table>{_NAME}) \(")
_INDEX = re.compile(
    rf"CREATE (?P<unique>UNIQUE )?INDEX (?P<index>{_NAME}) ON (?P<table>{_NAME}) (?P<columns>.*)"
)
_DROPPED_INDEX = re.compile(rf"DROP INDEX (?P<index>{_NAME})")
_ALTER = re.compile(rf"ALTER TABLE (?P<table>{_NAME}) (?P<action>.*)")
_COLUMN = re.compile(rf"ADD COLUMN (?P<column>{_NAME}) (?P<type>.*)")
_CHECK = re.compile(rf"ADD CONSTRAINT {_NAME} CHECK (?P<condition>.*)")
_UNIQUE = re.compile(rf"ADD CONSTRAINT {_NAME} (?:UNIQUE|FOREIGN KEY) ?\((?P<columns>[^)]*)\).*")
_REFERENCE = re.compile(
    rf"REFERENCES (?P<table>{_NAME}) ?\([^)]*\)(?P<deletes> ON DELETE (?:CASCADE|SET NULL))?"
)
_INSIDE = re.compile(r"'[^']*'|\([^()]*\)")
_UNIQUE_INDEXES = {
    index.name for table in metadata.tables.values() for index in table.indexes if index.unique
}


@dataclass(slots=True)
class _Additions:
    """What the statements so far have added. The version before doesn't use it."""

    tables: set[str] = field(default_factory=set)
    columns: set[tuple[str, str]] = field(default_factory=set)
    """Of tables of the version before: nullable, without a default."""
    searches: set[str] = field(default_factory=set)
    """Indexes that aren't unique and that the revision creates, perhaps in the place of one of the same name."""

    def has(self, table: str, columns: str) -> bool:
        """Whether one of the columns is NULL in each row that the version before writes."""
        return any((table, name) in self.columns for name in _words(columns))


def harmful_statements(revision: ModuleType) -> list[str]:
    """The statements of `upgrade` that aren't known to be harmless."""
    statements = [*_statements(revision)]
    created = [index for each in statements if (index := _INDEX.fullmatch(each))]
    additions = _Additions(searches={index["index"] for index in created if not index["unique"]})
    return [each for each in statements if not _is_harmless(each, additions)]


def _statements(revision: ModuleType) -> Iterator[str]:
    rendered = io.StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": rendered}
    )
    with Operations.context(context):
        revision.upgrade()
    for statement in rendered.getvalue().split(";\n"):
        if text := " ".join(statement.split()):
            yield text


def _is_harmless(statement: str, additions: _Additions) -> bool:
    if not _lets_rows_be_deleted(statement, additions):
        return False
    if table := _TABLE.match(statement):
        additions.tables.add(table["table"])
        return True
    if index := _INDEX.fullmatch(statement):
        return (
            index["unique"] is None
            or index["table"] in additions.tables
            or additions.has(index["table"], index["columns"])
        )
    if dropped := _DROPPED_INDEX.fullmatch(statement):
        return dropped["index"] in additions.searches and dropped["index"] not in _UNIQUE_INDEXES
    if alter := _ALTER.fullmatch(statement):
        return alter["table"] in additions.tables or _is_addition(
            alter["table"], alter["action"], additions
        )
    return False


def _lets_rows_be_deleted(statement: str, additions: _Additions) -> bool:
    """The version before deletes rows of its tables without knowing the rows that refer to them."""
    return all(
        found["deletes"] or found["table"] in additions.tables
        for found in _REFERENCE.finditer(statement)
    )


def _is_addition(table: str, action: str, additions: _Additions) -> bool:
    if "," in _outside_of_parentheses(action):
        return False
    if column := _COLUMN.fullmatch(action):
        has_default = "DEFAULT" in column["type"]
        if not has_default:
            additions.columns.add((table, column["column"]))
        return has_default or "NOT NULL" not in column["type"]
    if unique := _UNIQUE.fullmatch(action):
        return additions.has(table, unique["columns"])
    if check := _CHECK.fullmatch(action):
        return not _known_columns(table, additions) & _words(check["condition"])
    return False


def _known_columns(table: str, additions: _Additions) -> set[str]:
    """The columns that the version before has in this table."""
    return {
        column.name
        for column in metadata.tables[table].columns
        if (table, column.name) not in additions.columns
    }


def _outside_of_parentheses(text: str) -> str:
    while (shorter := _INSIDE.sub("", text)) != text:
        text = shorter
    return text


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
