"""Terms of a ticket: who may answer it, how long it waits, and what happens when nobody does."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.domain.json_values import JsonObject


class OnExpiry(StrEnum):
    """What happens when nobody has answered in time."""

    REJECT = "reject"
    CANCEL_RUN = "cancel_run"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproverRule:
    """Who may let a tool's calls pass: holders of a scope, not whoever started the run, so many."""

    scope: str | None = None
    not_starter: bool = False
    quorum: int = 1

    def broken_by(
        self, scopes: Collection[str], *, is_admin: bool, is_starter: bool
    ) -> tuple[str, str] | None:
        """The name of the rule that somebody fails, and what it asks for; None when they may."""
        if self.scope is not None and self.scope not in scopes and not is_admin:
            return "scope", f"it needs the scope {self.scope!r}, which your key doesn't have"
        if self.not_starter and is_starter:
            return "not_starter", "whoever started the run can't answer it; somebody else must"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketTerms:
    """`expires_in` is in seconds; without it the ticket waits for ever."""

    expires_in: float | None = None
    on_expiry: OnExpiry = OnExpiry.REJECT
    approvers: ApproverRule | None = None


NO_TERMS = TicketTerms()


def approvers_to_json(rule: ApproverRule) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if rule.scope is not None:
        body["scope"] = rule.scope
    if rule.not_starter:
        body["not_starter"] = True
    if rule.quorum > 1:
        body["quorum"] = rule.quorum
    return body


def approvers_from_json(raw: JsonObject) -> ApproverRule:
    return ApproverRule(
        scope=raw.get("scope"),
        not_starter=raw.get("not_starter", False),
        quorum=raw.get("quorum", 1),
    )


def policy_of_request(request: JsonObject) -> Mapping[str, Any]:
    """What a start has asked for its tickets, if it has."""
    policy: Mapping[str, Any] = request.get("ticket_policy") or {}
    return policy
