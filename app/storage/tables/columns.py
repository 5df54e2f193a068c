"""What the definitions of tables share: the names of constraints, types of columns, and checks."""

from enum import StrEnum

from sqlalchemy import (
    CheckConstraint,
    DateTime,
    ForeignKeyConstraint,
    MetaData,
    Uuid,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "pk": "%(table_name)s_pkey",
    }
)

UUID = Uuid(as_uuid=False)
TIME = DateTime(timezone=True)
NOW = text("now()")


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    """A check that the column holds a value of the enum; null passes where the column allows it."""
    allowed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({allowed})", name=column)


def belongs_to(parent: str, column: str) -> ForeignKeyConstraint:
    """A foreign key by which rows are deleted together with their parent row."""
    return ForeignKeyConstraint(
        ["tenant", column], [f"{parent}.tenant", f"{parent}.id"], ondelete="CASCADE"
    )
