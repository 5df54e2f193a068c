"""Reconciliation: a tool's answer about a call that a lost worker left running."""

from typing import Any, TypeAlias

from msgspec import Struct

from app.domain.tools.tool_calls import ToolResult


class Happened(Struct, frozen=True):
    """The call took effect; `result` is what it would have returned."""

    result: Any = None


class DidNotHappen(Struct, frozen=True):
    """The call took no effect, and won't later: it may run again, under the same key."""


class DontKnow(Struct, frozen=True):
    """The tool can't find out. `why` is shown to the person who is asked."""

    why: str | None = None


Reconciled: TypeAlias = Happened | DidNotHappen | DontKnow
"""What a tool's reconciler returns."""

ReconciledResult: TypeAlias = ToolResult | DidNotHappen | DontKnow
"""The same for the loop, with `Happened` as a tool result."""
