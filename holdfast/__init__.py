"""The public Python API: what tools are written with.

`holdfast.plugins` has what plugins are written with, and `holdfast.testing` runs agents in tests. Names that are
not in the `__all__` of these three modules are internal and may change in any release.
"""

import holdfast._own_app  # noqa: F401  before the first import of app

# isort: split
from app.domain.errors import ConfigurationError, EventTimedOut, HoldfastError
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, Happened
from app.domain.tools.tool_calls import Effect, ResumeMode, SuspensionRequest
from app.runtime.ports import ToolContext
from app.runtime.state import MergeStrategy, StateKey, StateScope, UpdateRejected
from app.tools.functions.decorator import FunctionTool, tool
from app.tools.functions.failure import ToolFailed

__all__ = [
    "ConfigurationError",
    "DidNotHappen",
    "DontKnow",
    "Effect",
    "EventTimedOut",
    "FunctionTool",
    "Happened",
    "HoldfastError",
    "MergeStrategy",
    "ResumeMode",
    "StateKey",
    "StateScope",
    "SuspensionRequest",
    "ToolContext",
    "ToolFailed",
    "UpdateRejected",
    "tool",
]
