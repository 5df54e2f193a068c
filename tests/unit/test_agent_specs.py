"""Stored agent specs have only fields that differ from their default, and survive a round trip."""

from typing import Any

import pytest

from app.domain.agents.endpoints import Endpoint
from app.domain.agents.skills import SkillSpec
from app.domain.agents.specs import (
    AgentSpec,
    Delegation,
    ToolExecution,
    agent_from_json,
    agent_to_json,
)
from app.domain.agents.tool_search import ToolSearchMode, ToolSearchPolicy
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId
from app.domain.inference.options import InferenceOptions, RetryPolicy
from app.domain.runs.output_specs import OutputMode, OutputSpec
from app.domain.structs import replace
from app.domain.tickets.terms import ApproverRule, OnExpiry, TicketTerms

BARE = AgentSpec(id=AgentId("clerk"))
SET: dict[str, Any] = {
    "model": "big",
    "system_prompt": "Be kind.",
    "description": "A clerk.",
    "tools": ("pay",),
    "approval": ("pay",),
    "background": ("slow",),
    "handoffs": (AgentId("boss"),),
    "max_rounds": 3,
    "tool_execution": ToolExecution.PARALLEL,
    "options": InferenceOptions(temperature=0.0),
    "retry": RetryPolicy(max_retries=0, fallback_upstream_models=("small",)),
    "plugins": {"b": {"x": 1}, "a": {}},
    "approvers": {"pay": ApproverRule(quorum=2)},
    "ticket_expires_in": 9.0,
    "on_expiry": OnExpiry.KEEP,
    "endpoint": Endpoint(backend="a2a", url="https://far.test"),
    "delegates": (AgentId("helper"),),
    "delegation": Delegation(keep=False),
    "output": OutputSpec(schema={"type": "object"}, mode=OutputMode.TOOL, retries=0),
    "tool_search": ToolSearchPolicy(mode=ToolSearchMode.ON, threshold=5, always=("pay*",)),
    "skills": (
        SkillSpec(name="a", description="A.", digest="1", allowed_tools=("pay",)),
        SkillSpec(name="b", description="B.", digest="2"),
    ),
    "script_timeout": 5.0,
}


def test_every_field_is_under_test() -> None:
    assert {"id", *SET} == set(AgentSpec.__struct_fields__)


def test_an_agent_without_settings_is_stored_as_its_id() -> None:
    assert agent_to_json(BARE) == {"id": "clerk"}
    assert agent_from_json({"id": "clerk"}) == BARE
    assert BARE.max_rounds == 16


@pytest.mark.parametrize("name", SET)
def test_each_field_survives_a_round_trip_and_changes_the_version(name: str) -> None:
    spec = replace(BARE, **{name: SET[name]})
    assert set(agent_to_json(spec)) == {"id", name}
    assert agent_from_json(agent_to_json(spec)) == spec
    assert spec.version != BARE.version


def test_all_fields_survive_a_round_trip() -> None:
    spec = replace(BARE, **SET)
    assert agent_from_json(agent_to_json(spec)) == spec


def test_the_order_of_plugins_is_stored_and_changes_the_version() -> None:
    spec = replace(BARE, plugins=SET["plugins"])
    other = replace(BARE, plugins=dict(reversed(SET["plugins"].items())))
    assert list(agent_from_json(agent_to_json(spec)).plugins) == ["b", "a"]
    assert spec.version != other.version


def test_a_key_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"'clerk'.*\['later', 'mood'\]"):
        agent_from_json({"id": "clerk", "mood": 1, "later": 2})


@pytest.mark.parametrize(
    "policy, expires_in, on_expiry",
    [
        ({}, 9.0, OnExpiry.KEEP),
        ({"expires_in": 5.0}, 5.0, OnExpiry.KEEP),
        ({"expires_in": None, "on_expiry": None}, 9.0, OnExpiry.KEEP),
        ({"on_expiry": "cancel_run"}, 9.0, OnExpiry.CANCEL_RUN),
    ],
)
def test_ticket_terms_of_a_run_replace_those_of_its_agent(
    policy: dict[str, Any], expires_in: float, on_expiry: OnExpiry
) -> None:
    spec = replace(BARE, **SET)
    rule = SET["approvers"]["pay"]
    assert spec.ticket_terms("pay", policy) == TicketTerms(
        expires_in=expires_in, on_expiry=on_expiry, approvers=rule
    )
    assert spec.ticket_terms("other", policy).approvers is None


def test_tickets_of_an_agent_without_terms_never_expire() -> None:
    assert BARE.ticket_terms("pay", {}) == TicketTerms()
