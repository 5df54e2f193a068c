"""The public Python API for plugins.

A module of the agents folder defines a `PluginKind`; `[agents.<agent>.plugins.<name>]` configures it. Its
hooks get a `HookView` and return requests.
"""

from app.builtin_plugins.kinds import ConfigProblem, PluginConfig, PluginKind
from app.domain.agents.specs import AgentSpec
from app.domain.inference.options import InferenceOptions, RetryPolicy, ThinkingBudget
from app.domain.rules.rules import Rule
from app.domain.runs.run_info import RunInfo
from app.domain.runs.runs import Usage
from app.domain.runs.terminations import Stopped
from app.domain.signals import ReceivedEvent
from app.domain.threads.messages import LoggedMessage, Message, Role, Text, ToolCall
from app.domain.tools.tool_calls import (
    Effect,
    ResultStatus,
    ResumeMode,
    SuspensionRequest,
    ToolDescriptor,
    ToolResult,
)
from app.runtime.history.compaction_plan import CompactionPolicy
from app.runtime.plugins import (
    AddContext,
    Block,
    ContextTarget,
    HandOff,
    HideTools,
    Hook,
    HookView,
    OnlyTools,
    OverrideInference,
    Pause,
    Phase,
    Plugin,
    Request,
    SetResult,
    Stop,
    Suspend,
    SuspendRun,
    Transform,
    ViewRequest,
    WaitFor,
)
from app.runtime.ports.memory import MemoryReader
from app.runtime.ports.tools import Tool
from app.runtime.state import (
    Change,
    MergeStrategy,
    StateKey,
    StateScope,
    StateView,
    UpdateRejected,
)

__all__ = [
    "AddContext",
    "AgentSpec",
    "Block",
    "Change",
    "CompactionPolicy",
    "ConfigProblem",
    "ContextTarget",
    "Effect",
    "HandOff",
    "HideTools",
    "Hook",
    "HookView",
    "InferenceOptions",
    "LoggedMessage",
    "MemoryReader",
    "MergeStrategy",
    "Message",
    "OnlyTools",
    "OverrideInference",
    "Pause",
    "Phase",
    "Plugin",
    "PluginConfig",
    "PluginKind",
    "ReceivedEvent",
    "Request",
    "ResultStatus",
    "ResumeMode",
    "RetryPolicy",
    "Role",
    "Rule",
    "RunInfo",
    "SetResult",
    "StateKey",
    "StateScope",
    "StateView",
    "Stop",
    "Stopped",
    "Suspend",
    "SuspendRun",
    "SuspensionRequest",
    "Text",
    "ThinkingBudget",
    "Tool",
    "ToolCall",
    "ToolDescriptor",
    "ToolResult",
    "Transform",
    "UpdateRejected",
    "Usage",
    "ViewRequest",
    "WaitFor",
]
