"""Stop conditions: end a run before its next step when it has used or repeated too much.

Counters cover the whole run, across suspensions, hand-overs and crashes. A condition of 0, or one that isn't
set, never applies. The loop itself limits the number of rounds.
"""

from collections.abc import Sequence

from pydantic import Field, field_validator

from app.builtin_plugins.kinds import PluginConfig, PluginKind
from app.domain.agents.specs import AgentSpec
from app.domain.json_values import JsonObject, digest
from app.domain.rules.linear_regex import MAX_MATCHED_CHARACTERS, BadRegex, LinearRegex
from app.domain.runs.terminations import Stopped
from app.domain.threads.messages import Message, ToolCall
from app.domain.tools.tool_calls import ResultStatus
from app.runtime.plugins import HookView, Phase, Plugin, Request, Stop
from app.runtime.state import Change, MergeStrategy, StateKey


class StopConditions(PluginConfig):
    token_budget: int = Field(default=0, ge=0)
    timeout: float = Field(default=0, ge=0)
    """Seconds of execution. Waiting for people doesn't count."""
    consecutive_errors: int = Field(default=0, ge=0)
    """Consecutive failed calls."""
    loop_detection: int = Field(default=0, ge=0)
    """Consecutive calls with the same tool and arguments."""
    stop_on_tool: str = ""
    content_match: str = ""
    """Regular expression that is searched for in the beginning of each answer, up to the engine's limit."""

    @field_validator("content_match")
    @classmethod
    def _must_be_a_pattern(cls, pattern: str) -> str:
        try:
            LinearRegex(pattern)
        except BadRegex as error:
            raise ValueError(str(error)) from error
        return pattern


def _count(stats: JsonObject, update: JsonObject) -> JsonObject:
    """The counters after one more result, call or answer."""
    now = dict(stats)
    if "failed" in update:
        now["errors"] = stats.get("errors", 0) + 1 if update["failed"] else 0
        if update["tool"] not in stats.get("tools", ()):
            now["tools"] = [*stats.get("tools", ()), update["tool"]]
    for call in update.get("calls", ()):
        repeats = now.get("repeats", 0) if now.get("last_call") == call else 0
        now |= {"last_call": call, "repeats": repeats + 1}
    return now


STATS: StateKey[JsonObject, JsonObject] = StateKey(
    "__runtime.stop_condition_stats", dict, _count, merge=MergeStrategy.COMMUTATIVE
)


def _plugin(_: AgentSpec, wanted: StopConditions) -> Plugin:
    content = LinearRegex(wanted.content_match) if wanted.content_match else None

    async def before_a_step(view: HookView) -> Sequence[Request]:
        fired = _fired(wanted, view)
        return [] if fired is None else [Stop(fired)]

    async def after_inference(view: HookView) -> Sequence[Request]:
        answer = view.answer
        if answer is None:
            return []
        requests: list[Request] = []
        if answer.tool_calls and wanted.loop_detection:
            calls = [_fingerprint(call) for call in answer.tool_calls]
            requests.append(Change(STATS, {"calls": calls}))
        if content is not None and _is_in(answer, content):
            requests.append(Stop(Stopped("content_match", "the answer has what ends the run")))
        return requests

    async def after_tool(view: HookView) -> Sequence[Request]:
        if view.result is None:
            return []
        failed = view.result.status is ResultStatus.ERROR
        return [Change(STATS, {"failed": failed, "tool": view.result.tool_name})]

    return Plugin(
        name=KIND.name,
        keys=[STATS],
        hooks={
            Phase.STEP_START: before_a_step,
            Phase.AFTER_INFERENCE: after_inference,
            Phase.AFTER_TOOL_EXECUTE: after_tool,
        },
    )


def _fired(wanted: StopConditions, view: HookView) -> Stopped | None:
    """The first condition that applies, in the documented order."""
    stats = view.state.get(STATS)
    tokens = view.usage.input_tokens + view.usage.output_tokens
    if wanted.token_budget and tokens >= wanted.token_budget:
        return Stopped("token_budget", f"{tokens} of {wanted.token_budget} tokens were used")
    if wanted.timeout and view.active_seconds >= wanted.timeout:
        return Stopped("timeout", f"{view.active_seconds:.1f} s of executing were used")
    errors = stats.get("errors", 0)
    if wanted.consecutive_errors and errors >= wanted.consecutive_errors:
        return Stopped("consecutive_errors", f"{errors} calls in a row have failed")
    repeats = stats.get("repeats", 0)
    if wanted.loop_detection and repeats >= wanted.loop_detection:
        return Stopped("loop_detection", f"the same call was made {repeats} times in a row")
    if wanted.stop_on_tool and wanted.stop_on_tool in stats.get("tools", ()):
        return Stopped("stop_on_tool", f"tool {wanted.stop_on_tool!r} was called")
    return None


def _fingerprint(call: ToolCall) -> str:
    return digest([call.name, call.arguments])


def _is_in(answer: Message, content: LinearRegex) -> bool:
    return content.is_found_in(answer.text[:MAX_MATCHED_CHARACTERS])


KIND = PluginKind(name="stop_conditions", config=StopConditions, build=_plugin)
