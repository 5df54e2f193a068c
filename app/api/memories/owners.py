"""The query parameters that say whose memories a request is about."""

from typing import Annotated, Literal, TypeAlias

from fastapi import Query
from msgspec import Struct

from app.api.schemas.common import Str
from app.domain.errors import Invalid
from app.domain.memories.access import own
from app.domain.memories.memories import (
    MAX_SUBJECT_CHARACTERS,
    TENANT_SUBJECT,
    MemoryOwner,
    MemoryScope,
)
from app.domain.principals import Principal
from app.http.query_params import in_event_loop

_Scope: TypeAlias = Literal["own", "subject", "user", "agent", "tenant"]
_Subject: TypeAlias = Annotated[
    Str | None,
    Query(
        min_length=1,
        max_length=MAX_SUBJECT_CHARACTERS,
        description="The subject, the user or the agent, for the scope of this name.",
    ),
]
_OTHERS = "All but `own` need the API scope `memories:all`."


class OneOwner(Struct, frozen=True):
    """One owner; by default the caller."""

    scope: Annotated[_Scope, Query(description=f"Whose memories these are. {_OTHERS}")] = "own"
    subject: _Subject = None

    def of(self, principal: Principal) -> MemoryOwner:
        return owner_of(self.scope, self.subject, principal)


class NamedOwner(Struct, frozen=True):
    """One owner, which the request has to name."""

    scope: Annotated[_Scope, Query(description=f"Whose memories these are. {_OTHERS}")]
    subject: _Subject = None

    def of(self, principal: Principal) -> MemoryOwner:
        return owner_of(self.scope, self.subject, principal)


class AnyOwners(Struct, frozen=True):
    """One owner or all of the tenant; by default the caller."""

    scope: Annotated[
        _Scope | Literal["all"],
        Query(description=f"Whose memories these are. `all` has those of all owners. {_OTHERS}"),
    ] = "own"
    subject: _Subject = None

    def of(self, principal: Principal) -> MemoryOwner | None:
        """The owner; None means all."""
        if self.scope != "all":
            return owner_of(self.scope, self.subject, principal)
        if self.subject is not None:
            raise _useless_subject(self.scope)
        return None


def owner_of(scope: _Scope, subject: str | None, principal: Principal) -> MemoryOwner:
    if scope in ("own", "tenant"):
        if subject is not None:
            raise _useless_subject(scope)
        if scope == "own":
            return own(principal)
        return MemoryOwner(MemoryScope.TENANT, TENANT_SUBJECT)
    if subject is None:
        raise Invalid(
            "invalid_request", f"query.subject: is missing. Name the {scope} with scope={scope}."
        )
    return MemoryOwner(MemoryScope(scope), subject)


def _useless_subject(scope: str) -> Invalid:
    return Invalid(
        "invalid_request",
        f"query.subject: means nothing with scope={scope}. Leave it out, or send scope=subject.",
    )


OwnerQuery = Annotated[OneOwner, in_event_loop(OneOwner)]
NamedOwnerQuery = Annotated[NamedOwner, in_event_loop(NamedOwner)]
AnyOwnersQuery = Annotated[AnyOwners, in_event_loop(AnyOwners)]
