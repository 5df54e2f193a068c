"""Terms of a ticket: which principals its approver rule refuses, and how it is stored."""

import pytest

from app.domain.tickets.terms import (
    ApproverRule,
    OnExpiry,
    TicketTerms,
    approvers_from_json,
    approvers_to_json,
    policy_of_request,
)


@pytest.mark.parametrize(
    "rule, scopes, is_admin, is_starter, broken",
    [
        (ApproverRule(), (), False, True, None),
        (ApproverRule(scope="pay"), ("pay",), False, True, None),
        (ApproverRule(scope="pay"), ("pay",), True, True, None),
        (ApproverRule(scope="pay"), (), True, True, None),
        (ApproverRule(scope="pay"), (), False, False, "scope"),
        (ApproverRule(scope="pay"), ("read",), False, False, "scope"),
        (ApproverRule(not_starter=True), (), False, False, None),
        (ApproverRule(not_starter=True), (), False, True, "not_starter"),
        (ApproverRule(not_starter=True), (), True, True, "not_starter"),
        (ApproverRule(scope="pay", not_starter=True), (), False, True, "scope"),
        (ApproverRule(scope="pay", not_starter=True), ("pay",), False, True, "not_starter"),
        (ApproverRule(scope="pay", not_starter=True), ("pay",), False, False, None),
    ],
)
def test_a_rule_names_what_a_principal_lacks(
    rule: ApproverRule,
    scopes: tuple[str, ...],
    is_admin: bool,
    is_starter: bool,
    broken: str | None,
) -> None:
    found = rule.broken_by(scopes, is_admin=is_admin, is_starter=is_starter)
    assert (None if found is None else found[0]) == broken


def test_a_missing_scope_is_named_in_the_answer() -> None:
    found = ApproverRule(scope="pay").broken_by((), is_admin=False, is_starter=False)
    assert found is not None
    assert "'pay'" in found[1]


@pytest.mark.parametrize(
    "rule, body",
    [
        (ApproverRule(), {}),
        (ApproverRule(quorum=1), {}),
        (ApproverRule(quorum=2), {"quorum": 2}),
        (ApproverRule(scope="pay"), {"scope": "pay"}),
        (ApproverRule(not_starter=True), {"not_starter": True}),
    ],
)
def test_a_rule_can_be_read_back(rule: ApproverRule, body: dict[str, object]) -> None:
    assert approvers_to_json(rule) == body
    assert approvers_from_json(body) == rule


def test_one_approval_is_enough_by_default() -> None:
    assert ApproverRule() == ApproverRule(scope=None, not_starter=False, quorum=1)
    assert TicketTerms() == TicketTerms(expires_in=None, on_expiry=OnExpiry.REJECT, approvers=None)


def test_the_policy_of_a_request_is_that_of_its_start() -> None:
    assert policy_of_request({"ticket_policy": {"expires_in": 5}}) == {"expires_in": 5}
    assert policy_of_request({"ticket_policy": None}) == {}
    assert policy_of_request({}) == {}
