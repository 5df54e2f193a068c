"""Terms of a ticket: who may answer it, when it expires, and what happens then."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from app.domain.json_values import JsonObject


class OnExpiry(StrEnum):
    """What happens when the ticket expires."""

    REJECT = "reject"
    CANCEL_RUN = "cancel_run"
    KEEP = "keep"


class ApproverRule(Struct, frozen=True, kw_only=True):
    """Who may approve a tool's calls: holders of `scope`, not the run's starter, and how many of them."""

    scope: str | None = None
    not_starter: bool = False
    quorum: int = 1

    def broken_by(
        self, scopes: Collection[str], *, is_admin: bool, is_starter: bool
    ) -> tuple[str, str] | None:
        """The part of the rule that a person doesn't fulfil, and why; None if they may answer."""
        if self.scope is not None and self.scope not in scopes and not is_admin:
            return "scope", f"it needs the scope {self.scope!r}, which your key doesn't have"
        if self.not_starter and is_starter:
            return (
                "not_starter",
                "the person who started the run can't answer it; another person must",
            )
        return None


class TicketTerms(Struct, frozen=True, kw_only=True):
    """`expires_in` is in seconds; without it the ticket never expires."""

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
    """The ticket policy of a run's start request; empty if it has none."""
    policy: Mapping[str, Any] = request.get("ticket_policy") or {}
    return policy
