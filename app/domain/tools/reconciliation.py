"""Reconciliation: what a tool can say of a call of its own that a lost worker left running."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from app.domain.tools.tool_calls import ToolResult


@dataclass(frozen=True, slots=True)
class Happened:
    """It took effect; `result` is what the call would have returned."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """It took no effect, and won't any more: it may be run again, under the same key."""


@dataclass(frozen=True, slots=True)
class DontKnow:
    """Only a person can find out. `why` is for that person."""

    why: str | None = None


Reconciled: TypeAlias = Happened | DidNotHappen | DontKnow
"""What a tool's function answers."""

Found: TypeAlias = ToolResult | DidNotHappen | DontKnow
"""The same as the loop gets it."""
