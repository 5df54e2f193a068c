"""Plugins: what may look at a run in its phases, and what they may ask for.

A hook gets a frozen view and returns requests; it changes nothing itself. So hooks of one phase see the
same state whatever their order, and a run can say what was asked of it and by whom.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import Any, TypeAlias

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.inference.options import InferenceOptions
from app.domain.json_values import Json, JsonObject
from app.domain.rules.rules import Rule
from app.domain.runs.runs import Usage
from app.domain.runs.terminations import Termination
from app.domain.signals import EventWait, ReceivedEvent
from app.domain.threads.messages import LoggedMessage, Message, ToolCall
from app.domain.tools.tool_calls import SuspensionRequest, ToolDescriptor, ToolResult
from app.runtime.history.compaction_plan import CompactionPolicy
from app.runtime.ports import Tool
from app.runtime.state import Change, StateKey, StateView

PERMISSION = "permission"
"""The plugin that judges whether a person has to be asked; without it, the agent's own list does."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HookView:
    """The run as it stands. Fields that a phase doesn't have are None."""

    phase: Phase
    run_id: RunId
    thread_id: ThreadId
    agent: AgentSpec
    state: StateView
    log: Sequence[LoggedMessage]
    steps: int
    """Steps that were completed, over all activations."""
    usage: Usage
    active_seconds: float
    """Time that was spent executing, over all activations; waiting for people doesn't count."""
    call: ToolCall | None = None
    """The call at hand, with the arguments that it would run with."""
    was_approved: bool = False
    """A person has let this very call pass."""
    resume_input: Json = None
    result: ToolResult | None = None
    answer: Message | None = None
    """What the model has just said."""
    remembered: Callable[[], Awaitable[Sequence[Rule]]] = _nothing_remembered
    """The rules that people have made for calls of this agent, here; read once a step, when asked for."""
    received: Callable[[str, str], Awaitable[ReceivedEvent | None]] = _nothing_received
    """At the gate: the event of a name and key that the call has waited for by `WaitFor`, if it has come."""


# --- what a hook may ask for ----------------------------------------------------------------------


class ContextTarget(StrEnum):
    """Where a context message stands in a request."""

    SYSTEM = "system"
    """Right after the system prompt."""
    CONVERSATION = "conversation"
    """Before the conversation, after all that is system."""
    SUFFIX = "suffix"
    """At the very end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddContext:
    """Show the model something that isn't in the log. Said again only after so many steps, or changed."""

    key: str
    text: str
    target: ContextTarget = ContextTarget.CONVERSATION
    priority: int = 0
    cooldown_steps: int = 0


@dataclass(frozen=True, slots=True)
class HideTools:
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class OnlyTools:
    """Several of these add up; hiding wins over them."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class OverrideInference:
    options: InferenceOptions


@dataclass(frozen=True, slots=True)
class Block:
    """Don't run this call, and end the run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Ask a person before this call runs."""

    request: SuspensionRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """Let this call wait for a signal before it runs. A wait that has its signal is passed.

    The gate is asked again then, and `view.received(name, key)` has the payload. After `timeout` seconds
    the call gets an error in place of a result.
    """

    name: str
    key: str
    schema: JsonObject | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        # Raised in the plugin's hook, which is named then.
        _ = self.event

    @property
    def event(self) -> EventWait:
        return EventWait(name=self.name, key=self.key, timeout=self.timeout)


@dataclass(frozen=True, slots=True)
class SetResult:
    """Take this for the call's result, without running it."""

    result: ToolResult


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run at the next border, keeping all that was said."""

    termination: Termination


@dataclass(frozen=True, slots=True)
class Pause:
    """Suspend the run at the next step border, until a client resumes it; the first reason counts."""

    reason: str


@dataclass(frozen=True, slots=True)
class HandOff:
    """Let another agent go on from the next step."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class SuspendRun:
    """Suspend the run with the reason `rate_limit`, and resume it after so many seconds; nothing is lost.

    The hook is asked again at the resume. The sum of a run's waits is limited by a setting.
    """

    seconds: float
    detail: str
    plugin: str = ""
    """Filled in by the phase."""

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
"""What can be asked for in each phase. At the gate nothing may change: it may be asked twice."""

Hook: TypeAlias = Callable[[HookView], Awaitable[Sequence[Request]]]


# --- what is sent to a model ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRequest:
    """What a transform needs to know besides the messages."""

    system_prompt: str
    tools: Sequence[ToolDescriptor]
    options: InferenceOptions


Transform: TypeAlias = Callable[[Sequence[Message], ViewRequest], Sequence[Message]]
"""Makes of what a model would be sent what it is sent. The log stays as it is."""


# --- plugins --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One plugin of one agent, configured. The same object serves all runs: it keeps nothing itself."""

    name: str
    keys: Sequence[StateKey[Any, Any]] = ()
    hooks: Mapping[Phase, Hook] = field(default_factory=dict)
    tools: Sequence[Tool] = ()
    transform: Transform | None = None
    compaction: CompactionPolicy | None = None
    """When old messages are summarised."""
    on_activate: Callable[[AgentSpec, StateView], Sequence[Change]] | None = None
    """When an agent with this plugin takes up a run: at its first start, and after a hand-off."""
    on_deactivate: Callable[[StateView], Sequence[Change]] | None = None


class PluginSet:
    """An agent's plugins in their order, sorted out once for all runs."""

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self.plugins = tuple(plugins)
        self.keys = tuple(key for plugin in self.plugins for key in plugin.keys)
        self.transforms = tuple(
            plugin.transform for plugin in self.plugins if plugin.transform is not None
        )
        self.compaction = next(
            (plugin.compaction for plugin in self.plugins if plugin.compaction is not None), None
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
        """The hooks of one phase with their plugins' names, in order."""
        return self._hooks[phase]


NO_PLUGINS = PluginSet()
