"""Permission: which calls run, which become tickets, and which are denied.

Rules come from the agents file, and from decisions that people asked to remember. A remembered rule can't
allow what the file denies. A denial is a result that the model reads; the run continues.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from pydantic import Field, field_validator

from app.builtin_plugins.kinds import ConfigProblem, PluginConfig, PluginKind
from app.domain.agents.mcp_references import may_name_mcp_tool
from app.domain.agents.specs import AgentSpec
from app.domain.json_values import as_object
from app.domain.rules.checks import problem_of_rule
from app.domain.rules.parser import BadPattern, exact_pattern, parse_pattern
from app.domain.rules.precedence import outranked_by
from app.domain.rules.rules import Behavior, Rule, decide_by_rules, denied_by_rule, never_runs
from app.domain.threads.messages import ToolCall
from app.domain.tools.tool_calls import SuspensionRequest, ToolDescriptor, ToolResult
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

_MAX_CACHED_NAMES = 1024


class PermissionRule(PluginConfig):
    tool: str = Field(min_length=1, max_length=1000)
    behavior: Literal["allow", "ask", "deny"]
    reason: str | None = Field(default=None, max_length=1000)
    """The result of a denied call."""
    frontend: bool = False
    """Whether the rule may be about tools that only a client's request brings."""

    @field_validator("tool")
    @classmethod
    def _must_be_a_pattern(cls, text: str) -> str:
        try:
            parse_pattern(text)
        except BadPattern as error:
            raise ValueError(f"column {error.column}: {error}") from error
        return text


class Permission(PluginConfig):
    default: Literal["allow", "ask", "deny"] = "ask"
    rules: list[PermissionRule] = []


def permission_plugin(spec: AgentSpec, wanted: Permission) -> Plugin:
    """The permission plugin. The tools in the agent's `approval` list count as rules that ask."""
    default = Behavior(wanted.default)
    of_file = [*_rules_of_approval(spec), *_rules_of_table(wanted)]
    may_deny = Behavior.DENY in {default, *(rule.behavior for rule in of_file)}

    @lru_cache(maxsize=_MAX_CACHED_NAMES)
    def is_always_denied(tool: str) -> bool:
        return never_runs(tool, of_file, default)

    async def before_inference(view: HookView) -> Sequence[Request]:
        # The tools of MCP servers and of requests are known only now.
        return [HideTools(frozenset(filter(is_always_denied, view.tool_names)))]

    async def at_the_gate(view: HookView) -> Sequence[Request]:
        call = view.call
        if call is None:
            return []
        arguments = as_object(call.arguments) or {}
        schema = None if view.tool is None else view.tool.parameters
        of_file_alone = decide_by_rules(call.name, arguments, of_file, schema)
        if _behavior(of_file_alone, default) is Behavior.DENY:
            return [SetResult(_denied(call, of_file_alone))]
        if view.was_approved:
            # A person has approved exactly this call, so remembered rules don't count.
            return []
        remembered = await view.remembered()
        rule = decide_by_rules(call.name, arguments, [*of_file, *remembered], schema)
        match _behavior(rule, default):
            case Behavior.ALLOW:
                return []
            case Behavior.ASK:
                return [Suspend(_question(spec, call))]
            case Behavior.DENY:
                return [SetResult(_denied(call, rule))]

    hooks: dict[Phase, Hook] = {Phase.TOOL_GATE: at_the_gate}
    if may_deny:
        hooks[Phase.BEFORE_INFERENCE] = before_inference
    return Plugin(name=PERMISSION, hooks=hooks)


def approval_plugin(spec: AgentSpec) -> Plugin:
    """The permission plugin of an agent that only lists tools that need approval."""
    return permission_plugin(spec, Permission(default="allow"))


def _rules_of_approval(spec: AgentSpec) -> list[Rule]:
    return [Rule(pattern=exact_pattern(tool), behavior=Behavior.ASK) for tool in spec.approval]


def _rules_of_table(wanted: Permission) -> list[Rule]:
    return [
        Rule(pattern=parse_pattern(each.tool), behavior=Behavior(each.behavior), reason=each.reason)
        for each in wanted.rules
    ]


def _check(
    spec: AgentSpec, wanted: Permission, tools: Mapping[str, ToolDescriptor]
) -> Iterator[ConfigProblem]:
    """Find rules that can never match, and rules that deny or ask without effect."""
    schemas = {name: each.parameters for name, each in tools.items()}
    of_approval, of_table = _rules_of_approval(spec), _rules_of_table(wanted)
    for position, rule in enumerate(of_table):
        # Which tools a client or an MCP server brings is not known yet.
        of_client = wanted.rules[position].frontend or may_name_mcp_tool(
            rule.pattern.name.text, spec.tools
        )
        problem = problem_of_rule(rule, schemas, of_client=of_client)
        if problem is not None:
            yield ConfigProblem(f"rules[{position}].tool", str(problem))
        elif (winner := outranked_by(rule, of_table, schemas)) is not None and not of_client:
            yield ConfigProblem(
                f"rules[{position}].tool",
                f"has no effect: the rule {winner.pattern.text!r} is more specific and lets these calls"
                f" {'run' if winner.behavior is Behavior.ALLOW else 'be approved'}; name the tool as exactly as"
                " that rule does, or remove one of them",
            )
    for position, rule in enumerate(of_approval):
        winner = outranked_by(rule, of_table, schemas)
        if winner is not None:
            yield ConfigProblem(
                f"rules[{of_table.index(winner)}].tool",
                f"allows every call of {spec.approval[position]!r}, which is in the agent's approval list;"
                " remove one of them, or add a condition here",
            )


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
    return ToolResult.error(call.name, denied_by_rule(rule))


KIND = PluginKind(name=PERMISSION, config=Permission, build=permission_plugin, check=_check)
