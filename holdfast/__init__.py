"""The public Python API for tools.

`holdfast.plugins` is the API for plugins, and `holdfast.testing` runs agents in tests. Names that are not in
the `__all__` of these three modules are internal and may change in any release.
"""

import holdfast._own_app  # noqa: F401  before the first import of app

# isort: split
from app.domain.deps import Deps
from app.domain.errors import (
    ConfigurationError,
    DecisionRejected,
    EventTimedOut,
    FileNotSaved,
    HoldfastError,
    MemoryUnavailable,
    QuestionInvalid,
)
from app.domain.memories.memories import MemoryEntry, MemoryOwner, MemoryScope
from app.domain.runs.run_info import RunInfo
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, Happened
from app.domain.tools.tool_calls import Effect, ResumeMode, SuspensionRequest
from app.runtime.ports.call_waits import ApprovalGiven
from app.runtime.ports.memory import Memory
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tool_files import OpenFile
from app.runtime.state import MergeStrategy, StateKey, StateScope, UpdateRejected
from app.tools.functions.decorator import FunctionTool, tool
from app.tools.functions.failure import ToolFailed
from app.tools.functions.result_files import ResultWithFiles, ToolFile
from app.tools.functions.startup import StartupFunction, startup

__all__ = [
    "ApprovalGiven",
    "ConfigurationError",
    "DecisionRejected",
    "Deps",
    "DidNotHappen",
    "DontKnow",
    "Effect",
    "EventTimedOut",
    "FileNotSaved",
    "FunctionTool",
    "Happened",
    "HoldfastError",
    "Memory",
    "MemoryEntry",
    "MemoryOwner",
    "MemoryScope",
    "MemoryUnavailable",
    "MergeStrategy",
    "OpenFile",
    "QuestionInvalid",
    "ResultWithFiles",
    "ResumeMode",
    "RunInfo",
    "StartupFunction",
    "StateKey",
    "StateScope",
    "SuspensionRequest",
    "ToolContext",
    "ToolFailed",
    "ToolFile",
    "UpdateRejected",
    "startup",
    "tool",
]
