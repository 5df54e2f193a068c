"""Tickets with their votes and the runs above them, read by keys in the statement of the list.

Postgres computes these columns only for the rows that a page has: after its order and limit.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Label, Select, case, func, select
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by

from app.domain.ids import AgentId, RunId
from app.domain.tickets.decisions import DecisionEffect
from app.domain.tickets.listed import ListedTicket, TicketLineage
from app.storage.codec import Row
from app.storage.tables import decisions, runs, tickets
from app.storage.tickets.decisions import decision_columns, decision_of
from app.storage.tickets.tickets import ticket_of, with_winner

_vote = decisions.alias("vote")
_run = runs.alias("asking")
_root = runs.alias("root")


def listed_tickets() -> Select[Any]:
    """Tickets with their decision, votes and lineage, as `listed_ticket_of` reads them."""
    return with_winner().add_columns(_votes(), _lineage())


def listed_ticket_of(row: Row) -> ListedTicket:
    lineage = row["lineage"]
    parent = lineage["parent_run_id"]
    return ListedTicket(
        ticket=ticket_of(row),
        lineage=TicketLineage(
            started_by=lineage["started_by"],
            parent_run_id=None if parent is None else RunId(parent),
            root_run_id=RunId(lineage["root_run_id"]),
            root_agent_id=AgentId(lineage["root_agent_id"]),
        ),
        votes=tuple(
            decision_of({**vote, "d_at": datetime.fromisoformat(vote["d_at"])})
            for vote in row["votes"] or ()
        ),
    )


def _votes() -> Label[Any]:
    labelled = {label.name: _vote.c[label.element.name] for label in decision_columns}
    vote = _json({"decision_id": _vote.c.decision_id, **labelled})
    found = (
        select(
            func.jsonb_agg(aggregate_order_by(vote, _vote.c.at, _vote.c.decision_id), type_=JSONB)
        )
        .where(
            _vote.c.tenant == tickets.c.tenant,
            _vote.c.ticket == tickets.c.id,
            _vote.c.effect == DecisionEffect.VOTED.value,
        )
        .scalar_subquery()
    )
    # Only a ticket with an approver rule can have votes.
    return case((tickets.c.approvers.is_not(None), found)).label("votes")


def _lineage() -> Label[Any]:
    # A root isn't read a second time.
    root_agent = (
        select(_root.c.agent_id)
        .where(_root.c.tenant == _run.c.tenant, _root.c.id == _run.c.root_run_id)
        .scalar_subquery()
    )
    lineage = _json(
        {
            "started_by": _run.c.started_by,
            "parent_run_id": _run.c.parent_run_id,
            "root_run_id": _run.c.root_run_id,
            "root_agent_id": case(
                (_run.c.parent_run_id.is_(None), _run.c.agent_id), else_=root_agent
            ),
        }
    )
    found = select(lineage).where(_run.c.tenant == tickets.c.tenant, _run.c.id == tickets.c.run_id)
    return found.scalar_subquery().label("lineage")


def _json(columns: dict[str, ColumnElement[Any]]) -> ColumnElement[Any]:
    pairs = [part for name, column in columns.items() for part in (name, column)]
    return func.jsonb_build_object(*pairs, type_=JSONB)
