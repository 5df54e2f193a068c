"""Principals: on whose behalf a command or query runs, and what it may do."""

from dataclasses import dataclass
from enum import StrEnum

from app.domain.errors import Forbidden
from app.domain.ids import Tenant


class Scope(StrEnum):
    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    DECISIONS_WRITE = "decisions:write"
    SIGNALS_WRITE = "signals:write"
    ADMIN = "admin"


DEFAULT_TENANT = Tenant("default")
ALL_TENANTS = Tenant("*")
"""Owner of what every tenant may see: agents that came from a file."""


@dataclass(frozen=True, slots=True)
class Principal:
    tenant: Tenant
    subject: str
    scopes: frozenset[str]
    """Ours, and those that an installation has made up for its approvers."""

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
