"""The rows that totals add up: those of the ledger, and for a period sums of whole hours or days."""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import (
    CTE,
    ColumnElement,
    FromClause,
    Subquery,
    case,
    func,
    literal,
    literal_column,
    select,
    text,
    union_all,
)

from app.domain.ids import Tenant
from app.domain.usage.totals import UsageFilter
from app.storage.tables import usage, usage_days, usage_hours, usage_summed
from app.storage.tables.columns import TIME

_OF_REQUEST: dict[str, ColumnElement[int]] = {
    "requests": literal_column("1").label("requests"),
    "unpriced": case((usage.c.cost_micros.is_(None), 1), else_=0).label("unpriced"),
}


def ledger_rows(*conditions: ColumnElement[bool]) -> Subquery:
    """Rows of the ledger, each as the sum of one request."""
    return select(usage, *_OF_REQUEST.values()).where(*conditions).subquery("rows")


def summed_rows(tenant: Tenant, wanted: UsageFilter, *, by_subject: bool) -> Subquery:
    """The sums of whole hours, or of whole days if it is about subjects, and the ledger for the rest of the period.

    One statement reads the bounds and both, so that a sum that is added meanwhile is counted once.
    """
    by_subject = by_subject or wanted.subject is not None
    sums = usage_days if by_subject else usage_hours
    bounds = _bounds(wanted.begin, wanted.end, "day" if by_subject else "hour")
    first, last = (select(bounds.c[name]).scalar_subquery() for name in ("first", "last"))
    names = [column.name for column in sums.columns]
    of_ledger = [_OF_REQUEST[name] if name in _OF_REQUEST else usage.c[name] for name in names]
    return union_all(
        select(sums).where(
            *_conditions(sums, tenant, wanted), sums.c.at >= first, sums.c.at < last
        ),
        select(*of_ledger).where(
            *_conditions(usage, tenant, wanted), usage.c.at >= wanted.begin, usage.c.at < first
        ),
        select(*of_ledger).where(
            *_conditions(usage, tenant, wanted), usage.c.at >= last, usage.c.at < wanted.end
        ),
    ).subquery("rows")


def _conditions(
    rows: FromClause, tenant: Tenant, wanted: UsageFilter
) -> Iterator[ColumnElement[bool]]:
    yield rows.c.tenant == tenant
    filters = {"agent_id": wanted.agent_id, "model": wanted.model, "subject": wanted.subject}
    yield from (rows.c[name] == value for name, value in filters.items() if value is not None)


def _bounds(begin: datetime, end: datetime, unit: str) -> CTE:
    """The first whole hour or day of a period that is summed, and the end of the last one."""
    width = text(f"interval '1 {unit}'")

    def floor(at: ColumnElement[datetime]) -> ColumnElement[datetime]:
        return func.date_trunc(unit, at, "UTC", type_=TIME)

    from_, to = literal(begin, TIME), literal(end, TIME)
    since = func.greatest(from_, func.max(usage_summed.c.since))
    until = func.least(to, func.coalesce(func.max(usage_summed.c.until), from_))
    first = func.least(to, floor(since + width - text("interval '1 microsecond'")))
    return select(first.label("first"), func.greatest(first, floor(until)).label("last")).cte(
        "bounds"
    )
