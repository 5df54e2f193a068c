"""Errands: what one run has to have done about another, carried out in a transaction of that run's thread."""

from dataclasses import dataclass
from enum import StrEnum

from app.domain.ids import RunId, Tenant


class ErrandKind(StrEnum):
    START_CHILD = "start_child"
    TELL_PARENT = "tell_parent"
    CANCEL_CHILD = "cancel_child"
    FORGET_CHILD = "forget_child"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """May be carried out twice, or too late: whoever does it looks at how things stand by then."""

    kind: ErrandKind
    tenant: Tenant
    parent_run_id: RunId
    child_run_id: RunId
