"""The agent that an entry of the agents file describes."""

from collections.abc import Mapping
from types import MappingProxyType

from app.agents.delegation_checks import (
    endpoint_of,
)
from app.agents.file_schema import (
    AgentEntry,
    OptionsEntry,
    OutputEntry,
    RetryEntry,
)
from app.domain.agents.specs import AgentSpec, Delegation, ToolExecution
from app.domain.agents.tool_search import ToolSearchMode, ToolSearchPolicy
from app.domain.ids import AgentId
from app.domain.inference.options import InferenceOptions, RetryPolicy, ThinkingBudget
from app.domain.runs.output_specs import OutputMode, OutputSpec
from app.domain.tickets.terms import ApproverRule, OnExpiry
from app.tools.skills.skill import Skill


def agent_spec(name: str, entry: AgentEntry, skills: Mapping[str, Skill]) -> AgentSpec:
    return AgentSpec(
        id=AgentId(name),
        model=entry.model or "",
        endpoint=None if entry.endpoint is None else endpoint_of(entry.endpoint),
        system_prompt=entry.system_prompt,
        description=entry.description,
        tools=tuple(entry.tools),
        tool_search=ToolSearchPolicy(
            mode=ToolSearchMode(entry.tool_search.mode),
            threshold=entry.tool_search.threshold,
            always=tuple(entry.tool_search.always),
        ),
        skills=tuple(skills[each].spec for each in entry.skills),
        script_timeout=entry.script_timeout,
        approval=tuple(entry.approval),
        background=tuple(entry.background),
        handoffs=tuple(AgentId(each) for each in entry.handoffs),
        delegates=tuple(AgentId(each) for each in entry.delegates),
        output=None if entry.output is None else output_spec(entry.output),
        delegation=Delegation(**entry.delegation.model_dump()),
        max_rounds=entry.max_rounds,
        tool_execution=ToolExecution(entry.tool_execution),
        options=_options(entry.options),
        retry=_retry(entry.retry),
        plugins=MappingProxyType(entry.plugins),
        approvers=MappingProxyType(
            {tool: ApproverRule(**rule.model_dump()) for tool, rule in entry.approvers.items()}
        ),
        ticket_expires_in=entry.ticket_expires_in,
        on_expiry=OnExpiry(entry.on_expiry),
    )


def output_spec(entry: OutputEntry) -> OutputSpec:
    return OutputSpec(
        schema=entry.schema_,
        name=entry.name,
        mode=OutputMode(entry.mode),
        retries=entry.retries,
        strict=entry.strict,
    )


def _options(entry: OptionsEntry) -> InferenceOptions:
    values = entry.model_dump(exclude={"thinking_budget", "fallback_upstream_models"})
    fallbacks = entry.fallback_upstream_models
    budget = entry.thinking_budget
    if budget is not None:
        values["reasoning_effort"] = ThinkingBudget(budget)
    return InferenceOptions(
        **values, fallback_upstream_models=None if fallbacks is None else tuple(fallbacks)
    )


def _retry(entry: RetryEntry) -> RetryPolicy:
    values = entry.model_dump(exclude={"fallback_upstream_models"})
    return RetryPolicy(**values, fallback_upstream_models=tuple(entry.fallback_upstream_models))
