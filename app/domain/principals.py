"""Principals: the caller of a command or query, and its scopes."""

from enum import StrEnum

from msgspec import Struct

from app.domain.errors import Forbidden
from app.domain.ids import Tenant


class Scope(StrEnum):
    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    RUNS_CONTEXT = "runs:context"
    """Starts runs with a `context`, which tools trust."""
    DECISIONS_WRITE = "decisions:write"
    SIGNALS_WRITE = "signals:write"
    USAGE_READ = "usage:read"
    """Reads the tokens and the cost of all runs."""
    MEMORIES_OWN = "memories:own"
    """Reads, changes and deletes the memories of runs that the key itself starts."""
    MEMORIES_ALL = "memories:all"
    """Does the same with the memories of all owners of the tenant."""
    ADMIN = "admin"


DEFAULT_TENANT = Tenant("default")
ALL_TENANTS = Tenant("*")
"""The tenant of rows that all tenants see: agents that came from a file."""


class Principal(Struct, frozen=True):
    tenant: Tenant
    subject: str
    scopes: frozenset[str]
    """Holdfast's scopes, and an installation's own scopes for its approvers."""

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    def may(self, scope: str) -> bool:
        return scope in self.scopes or self.is_admin

    def require(self, scope: Scope) -> None:
        if not self.may(scope):
            raise Forbidden(
                "scope_missing",
                f"This needs the scope {scope.value!r}, which your key doesn't have.",
            )
