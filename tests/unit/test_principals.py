"""Principals: the scope of an action, or the scope `admin`, allows it."""

import pytest

from app.domain.errors import Forbidden
from app.domain.principals import DEFAULT_TENANT, Principal, Scope


@pytest.mark.parametrize(
    "scopes, may",
    [((), False), (("runs:read",), False), (("runs:write",), True), (("admin",), True)],
)
def test_a_person_may_do_what_a_scope_allows(scopes: tuple[str, ...], may: bool) -> None:
    person = Principal(DEFAULT_TENANT, "ann", frozenset(scopes))
    assert person.may(Scope.RUNS_WRITE) is may
    if may:
        person.require(Scope.RUNS_WRITE)
    else:
        with pytest.raises(Forbidden, match="'runs:write'"):
            person.require(Scope.RUNS_WRITE)
