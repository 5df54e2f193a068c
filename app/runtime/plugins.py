"""Plugins: the phases, the view that a hook gets, and the requests that it may return.

A hook changes nothing itself. So all hooks of a phase see the same state in any order, and the runtime knows
which plugin asked for what.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct

from app.domain.agents.specs import AgentSpec
from app.domain.deps import Deps
from app.domain.ids import AgentId
from app.domain.inference.options import InferenceOptions
from app.domain.json_values import Json, JsonObject
from app.domain.memories.memories import MemoryPolicy
from app.domain.rules.rules import Rule
from app.domain.runs.run_info import RunInfo
from app.domain.runs.runs import Usage
from app.domain.runs.terminations import Termination
from app.domain.signals import EventWait, ReceivedEvent
from app.domain.threads.messages import LoggedMessage, Message, ToolCall
from app.domain.tools.tool_calls import SuspensionRequest, ToolDescriptor, ToolResult
from app.runtime.history.compaction_plan import CompactionPolicy
from app.runtime.ports.memory import MemoryReader
from app.runtime.ports.tools import Tool
from app.runtime.state import Change, StateKey, StateView

PERMISSION = "permission"
"""The plugin that decides which calls need approval; without it, the agent's `approval` list does."""
APPROVAL_ACTION = "tool:PermissionConfirm"


async def _nothing_remembered() -> Sequence[Rule]:
    return ()


async def _nothing_received(_name: str, _key: str) -> ReceivedEvent | None:
    return None


class Phase(StrEnum):
    RUN_START = "run_start"
    STEP_START = "step_start"
    BEFORE_INFERENCE = "before_inference"
    AFTER_INFERENCE = "after_inference"
    TOOL_GATE = "tool_gate"
    BEFORE_TOOL_EXECUTE = "before_tool_execute"
    AFTER_TOOL_EXECUTE = "after_tool_execute"
    STEP_END = "step_end"
    RUN_END = "run_end"


# --- what a hook sees -----------------------------------------------------------------------------


class HookView(Struct, frozen=True, kw_only=True):
    """The run at the moment of the call. Fields that a phase doesn't have are None."""

    phase: Phase
    run: RunInfo
    agent: AgentSpec
    deps: Deps
    """What the functions with `@startup` opened: `view.deps.pool`."""
    state: StateView
    log: Sequence[LoggedMessage]
    steps: int
    """Completed steps, over all activations."""
    usage: Usage
    active_seconds: float
    """Time spent executing, over all activations, without waits."""
    tool_names: Collection[str] = ()
    """Before inference: the names of the run's tools, with those of MCP servers and of the request."""
    call: ToolCall | None = None
    """The current call, with the arguments that it runs with."""
    tool: ToolDescriptor | None = None
    """At the gate: the called tool."""
    was_approved: bool = False
    """Whether a person approved this call."""
    resume_input: Json = None
    result: ToolResult | None = None
    answer: Message | None = None
    """The model's latest answer."""
    remembered: Callable[[], Awaitable[Sequence[Rule]]] = _nothing_remembered
    """The rules that people's decisions made for this agent's calls; read once a step, on demand."""
    memory: MemoryReader | None = None
    """The memories that the agent uses; None for agents without the plugin `memory`, and at the end of a run."""
    received: Callable[[str, str], Awaitable[ReceivedEvent | None]] = _nothing_received
    """At the gate: the event that the call waited for by `WaitFor(name, key)`, if it came."""


# --- what a hook may request ----------------------------------------------------------------------


class ContextTarget(StrEnum):
    """The position of a context message in a request."""

    SYSTEM = "system"
    """Right after the system prompt."""
    CONVERSATION = "conversation"
    """Before the conversation, after the leading system messages."""
    SUFFIX = "suffix"
    """At the very end."""


class AddContext(Struct, frozen=True, kw_only=True):
    """Show the model a text that isn't in the log. Within the cooldown it is shown again only if it changed."""

    key: str
    text: str
    target: ContextTarget = ContextTarget.CONVERSATION
    priority: int = 0
    cooldown_steps: int = 0


class HideTools(Struct, frozen=True):
    names: frozenset[str]


class OnlyTools(Struct, frozen=True):
    """Offer only these tools. Several requests add up; `HideTools` wins over them."""

    names: frozenset[str]


class OverrideInference(Struct, frozen=True):
    options: InferenceOptions


class Block(Struct, frozen=True):
    """Don't run this call, and end the run."""

    reason: str


class Suspend(Struct, frozen=True):
    """Ask a person before this call runs."""

    request: SuspensionRequest


class WaitFor(Struct, frozen=True, kw_only=True):
    """Let this call wait for a signal before it runs.

    When the signal comes, the call passes the gate again, and `view.received(name, key)` has the payload.
    After `timeout` seconds the call gets an error as its result.
    """

    name: str
    key: str
    schema: JsonObject | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        # An invalid wait is raised in the plugin's hook, so that the error names the plugin.
        _ = self.event

    @property
    def event(self) -> EventWait:
        return EventWait(name=self.name, key=self.key, timeout=self.timeout)


class SetResult(Struct, frozen=True):
    """Use this as the call's result, without running the call."""

    result: ToolResult


class Stop(Struct, frozen=True):
    """End the run at the next safe point; the messages so far are kept."""

    termination: Termination


class Pause(Struct, frozen=True):
    """Suspend the run at the next step border until a client resumes it; the first reason counts."""

    reason: str


class HandOff(Struct, frozen=True):
    """Let another agent continue from the next step."""

    agent_id: AgentId


class SuspendRun(Struct, frozen=True):
    """Suspend the run with the reason `rate_limit`, and resume it after so many seconds.

    The hook is called again at the resume. A setting limits the sum of a run's waits.
    """

    seconds: float
    detail: str
    plugin: str = ""
    """Set by the runtime."""

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < inf:
            raise ValueError(f"a run can't be suspended for {self.seconds!r} seconds")


Request: TypeAlias = (
    Change
    | AddContext
    | HideTools
    | OnlyTools
    | OverrideInference
    | Block
    | Suspend
    | WaitFor
    | SetResult
    | Stop
    | Pause
    | SuspendRun
    | HandOff
)

_ANYWHERE = (Change, Stop, Pause)
OFFERED: Mapping[Phase, tuple[type[Any], ...]] = MappingProxyType(
    {
        Phase.RUN_START: (*_ANYWHERE, SuspendRun),
        Phase.STEP_START: (*_ANYWHERE, SuspendRun),
        Phase.BEFORE_INFERENCE: (
            *_ANYWHERE,
            SuspendRun,
            AddContext,
            HideTools,
            OnlyTools,
            OverrideInference,
        ),
        Phase.AFTER_INFERENCE: _ANYWHERE,
        Phase.TOOL_GATE: (Block, Suspend, WaitFor, SetResult),
        Phase.BEFORE_TOOL_EXECUTE: _ANYWHERE,
        Phase.AFTER_TOOL_EXECUTE: (*_ANYWHERE, HandOff),
        Phase.STEP_END: (*_ANYWHERE, HandOff),
        Phase.RUN_END: (Change,),
    }
)
"""The requests that each phase accepts. The gate accepts no changes, because its hooks may run twice."""

Hook: TypeAlias = Callable[[HookView], Awaitable[Sequence[Request]]]


# --- transforms -----------------------------------------------------------------------------------


class ViewRequest(Struct, frozen=True, kw_only=True):
    """The parts of a model request besides its messages, for transforms."""

    system_prompt: str
    tools: Sequence[ToolDescriptor]
    options: InferenceOptions


Transform: TypeAlias = Callable[[Sequence[Message], ViewRequest], Sequence[Message]]
"""Changes the messages of one request. The log stays as it is."""


# --- plugins --------------------------------------------------------------------------------------


class Plugin(Struct, frozen=True, kw_only=True):
    """One configured plugin of one agent. All runs share the object, so it has no state of its own."""

    name: str
    keys: Sequence[StateKey[Any, Any]] = ()
    hooks: Mapping[Phase, Hook] = {}
    tools: Sequence[Tool] = ()
    transform: Transform | None = None
    compaction: CompactionPolicy | None = None
    """When to summarise old messages; of several plugins the first one counts."""
    memory: MemoryPolicy | None = None
    """Whose memories the agent's tools use; of several plugins the first one counts."""
    on_activate: Callable[[AgentSpec, StateView], Sequence[Change]] | None = None
    """Called when an agent with this plugin starts a run or takes one over by hand-off."""
    on_deactivate: Callable[[StateView], Sequence[Change]] | None = None
    """Called when the agent hands the run off."""


class PluginSet:
    """An agent's plugins in their order, with their hooks by phase."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self.plugins = tuple(plugins)
        self.keys = tuple(key for plugin in self.plugins for key in plugin.keys)
        self.transforms = tuple(
            plugin.transform for plugin in self.plugins if plugin.transform is not None
        )
        self.compaction = next(
            (plugin.compaction for plugin in self.plugins if plugin.compaction is not None), None
        )
        self.memory = next(
            (plugin.memory for plugin in self.plugins if plugin.memory is not None), None
        )
        self._hooks: dict[Phase, tuple[tuple[str, Hook], ...]] = {
            phase: tuple(
                (plugin.name, plugin.hooks[phase])
                for plugin in self.plugins
                if phase in plugin.hooks
            )
            for phase in Phase
        }

    def hooks(self, phase: Phase) -> Sequence[tuple[str, Hook]]:
        """The hooks of one phase, with the names of their plugins."""
        return self._hooks[phase]


NO_PLUGINS = PluginSet()
