"""`@tool(approval=…)`: which calls of a tool need a person's approval before they run."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from app.domain.errors import ConfigurationError
from app.domain.json_values import JsonObject
from app.domain.rules.checks import problem_of_rule
from app.domain.rules.parser import BadPattern, parse_pattern
from app.domain.rules.patterns import Arguments
from app.domain.rules.rules import Behavior, Rule
from app.runtime.ports.tool_context import ToolContext
from app.tools.functions.call import call

TIMEOUT_SECONDS = 10.0
"""A function that takes longer counts as asking for approval."""
_log = logging.getLogger(__name__)

Question: TypeAlias = bool | str | None
Approval: TypeAlias = bool | str | Callable[..., Question | Awaitable[Question]]
"""True, conditions on the arguments, or a function of the arguments and the context."""


class ApprovalCheck(Struct, frozen=True):
    """Decides whether a call needs approval: by a rule, or by a function. Without both, every call does."""

    tool_name: str
    rule: Rule | None = None
    schema: JsonObject | None = None
    function: Callable[..., Any] | None = None

    async def question(self, arguments: JsonObject, context: ToolContext) -> str | None:
        """The question for the person, or None. In doubt, a person is asked."""
        default = f"Tool '{self.tool_name}' suspended: awaiting approval"
        if self.function is None:
            fits = self.rule is None or self.rule.fits(
                self.tool_name, Arguments(arguments, self.schema)
            )
            return default if fits else None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answer = await call(
                    self.function,
                    _values(self.function, arguments, context),
                    context.wait_for_capacity,
                )
        except (Exception, SystemExit):  # noqa: BLE001  a tool's code
            _log.warning("approval check of tool %s failed", self.tool_name, exc_info=True)
            return default
        if answer is False or answer is None:
            return None
        return answer if isinstance(answer, str) and answer.strip() else default


def _values(
    function: Callable[..., Any], arguments: JsonObject, context: ToolContext
) -> Mapping[str, Any]:
    names = list(inspect.signature(function).parameters)
    return dict(zip(names, (dict(arguments), context), strict=False))


def approval_check(tool_name: str, schema: JsonObject, approval: Approval) -> ApprovalCheck | None:
    """Raises ConfigurationError for an approval that could never ask, or that can't be called."""
    if approval is False:
        return None
    if approval is True:
        return ApprovalCheck(tool_name)
    if isinstance(approval, str):
        return ApprovalCheck(tool_name, _rule(tool_name, schema, approval), schema)
    if not callable(approval):
        raise _unusable(tool_name, "it must be True, conditions as text, or a function")
    parameters = list(inspect.signature(approval).parameters.values())
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if not 1 <= len(parameters) <= 2 or any(each.kind not in by_name for each in parameters):
        raise _unusable(
            tool_name, "the function takes the arguments as a dict, and optionally the ToolContext"
        )
    return ApprovalCheck(tool_name, function=approval)


def _rule(tool_name: str, schema: JsonObject, text: str) -> Rule:
    if not text.strip():
        raise _no_condition(tool_name, text)
    before = len(f"{tool_name}(")
    try:
        pattern = parse_pattern(f"{tool_name}({text})")
    except BadPattern as error:
        raise _unusable(tool_name, f"column {error.column - before}: {error}") from error
    if not pattern.conditions:
        raise _no_condition(tool_name, text)
    rule = Rule(pattern=pattern, behavior=Behavior.ASK)
    problem = problem_of_rule(rule, {tool_name: schema})
    if problem is not None:
        raise _unusable(tool_name, f"column {problem.column - before}: {problem.sentence}")
    return rule


def _no_condition(tool_name: str, text: str) -> ConfigurationError:
    return _unusable(tool_name, f'{text!r} isn\'t a condition; write one such as "amount > 50"')


def _unusable(tool_name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"tool {tool_name!r}: approval: {why}")
