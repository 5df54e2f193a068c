"""Permission: which calls run, which a person is asked about, which the model is told it may not make.

The agents file has rules, and people have theirs, made when they answered. What the file denies, nobody
can allow by remembering. A denial is a result that the model reads; the run goes on.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from app.builtin_plugins.kinds import PluginConfig, PluginKind
from app.domain.agents.specs import AgentSpec
from app.domain.json_values import as_object
from app.domain.rules.parser import BadPattern, exact_pattern, parse_pattern
from app.domain.rules.rules import Behavior, Rule, decide_by_rules, never_runs
from app.domain.threads.messages import ToolCall
from app.domain.tools.tool_calls import SuspensionRequest, ToolResult
from app.runtime.plugins import (
    APPROVAL_ACTION,
    PERMISSION,
    HideTools,
    Hook,
    HookView,
    Phase,
    Plugin,
    Request,
    SetResult,
    Suspend,
)


class PermissionRule(PluginConfig):
    tool: str = Field(min_length=1, max_length=1000)
    behavior: Literal["allow", "ask", "deny"]
    reason: str | None = Field(default=None, max_length=1000)
    """What the model is told of a denial."""

    @field_validator("tool")
    @classmethod
    def _must_be_a_pattern(cls, text: str) -> str:
        try:
            parse_pattern(text)
        except BadPattern as error:
            raise ValueError(f"isn't a pattern: {error}") from error
        return text


class Permission(PluginConfig):
    default: Literal["allow", "ask", "deny"] = "ask"
    rules: list[PermissionRule] = []


def permission_plugin(spec: AgentSpec, wanted: Permission) -> Plugin:
    """The agent's list of what needs approval counts as rules that ask."""
    default = Behavior(wanted.default)
    of_file = [
        *(Rule(pattern=exact_pattern(tool), behavior=Behavior.ASK) for tool in spec.approval),
        *(
            Rule(
                pattern=parse_pattern(each.tool),
                behavior=Behavior(each.behavior),
                reason=each.reason,
            )
            for each in wanted.rules
        ),
    ]
    hidden = frozenset(tool for tool in spec.tools if never_runs(tool, of_file, default))

    async def before_inference(_: HookView) -> Sequence[Request]:
        return [HideTools(hidden)]

    async def at_the_gate(view: HookView) -> Sequence[Request]:
        call = view.call
        if call is None:
            return []
        arguments = as_object(call.arguments) or {}
        of_file_alone = decide_by_rules(call.name, arguments, of_file)
        if _behavior(of_file_alone, default) is Behavior.DENY:
            return [SetResult(_denied(call, of_file_alone))]
        if view.was_approved:
            # A person has let this very call pass: what others have made of calls like it doesn't count.
            return []
        remembered = await view.remembered()
        rule = decide_by_rules(call.name, arguments, [*of_file, *remembered])
        match _behavior(rule, default):
            case Behavior.ALLOW:
                return []
            case Behavior.ASK:
                return [Suspend(_question(spec, call))]
            case Behavior.DENY:
                return [SetResult(_denied(call, rule))]

    hooks: dict[Phase, Hook] = {Phase.TOOL_GATE: at_the_gate}
    if hidden:
        hooks[Phase.BEFORE_INFERENCE] = before_inference
    return Plugin(name=PERMISSION, hooks=hooks)


def approval_plugin(spec: AgentSpec) -> Plugin:
    """For an agent that lists tools that need approval, and says nothing else."""
    return permission_plugin(spec, Permission(default="allow"))


def _behavior(rule: Rule | None, default: Behavior) -> Behavior:
    return default if rule is None else rule.behavior


def _question(spec: AgentSpec, call: ToolCall) -> SuspensionRequest:
    return SuspensionRequest(
        f"Tool '{call.name}' suspended: awaiting approval"
        if call.name in spec.approval
        else f"Permission required for tool '{call.name}'",
        action=APPROVAL_ACTION,
        suspension_id=f"perm_{call.id}",
    )


def _denied(call: ToolCall, rule: Rule | None) -> ToolResult:
    reason = None if rule is None else rule.reason
    return ToolResult.error(call.name, f"Denied: {reason or 'a rule forbids this call'}")


KIND = PluginKind(name=PERMISSION, config=Permission, build=permission_plugin)
