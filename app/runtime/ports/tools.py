"""Tools, as the runtime calls them."""

from typing import Any, Protocol, runtime_checkable

from app.domain.json_values import Json
from app.domain.tools.reconciliation import ReconciledResult
from app.domain.tools.tool_calls import ToolDescriptor, ToolResult
from app.runtime.ports.tool_context import ToolContext


class Tool(Protocol):
    """One tool. It returns its errors as results; only cancellation leaves `execute` as an exception."""

    @property
    def descriptor(self) -> ToolDescriptor: ...

    def invalid_arguments(self, arguments: Json) -> str | None:
        """Why the arguments don't fit the schema, or None."""

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult: ...


@runtime_checkable
class Reconciles(Tool, Protocol):
    """A tool that can find out whether an interrupted call took effect."""

    @property
    def reconciles(self) -> bool:
        """Whether the tool has a reconciler."""

    async def reconcile(self, arguments: dict[str, Any], context: ToolContext) -> ReconciledResult:
        """Find out, without changes. The context's idempotency key names the call."""


@runtime_checkable
class NeedsApproval(Tool, Protocol):
    """A tool that decides itself which of its calls need approval before they run."""

    @property
    def needs_approval(self) -> bool:
        """Whether some of its calls do."""

    async def approval_question(
        self, arguments: dict[str, Any], context: ToolContext
    ) -> str | None:
        """The question for the person, or None if the call needs no approval."""
