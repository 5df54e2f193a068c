"""Capabilities: each feature that a request needs and a backend lacks is named."""

from typing import Any

import pytest

from app.domain.agents.capabilities import (
    FULL,
    REMOTE_STATELESS_TEXT,
    Cancellation,
    Capabilities,
    Continuation,
    DelegateNeeds,
    RootNeeds,
    unsupported_delegate_features,
    unsupported_message,
    unsupported_root_features,
)
from app.domain.ids import AgentId
from app.domain.structs import replace

FEATURES = list(RootNeeds.__struct_fields__)
ALL = RootNeeds(**dict.fromkeys(FEATURES, True))
SWITCHES = [name for name in FEATURES if name != "continuation"]


def test_the_own_loop_offers_everything() -> None:
    assert unsupported_root_features(FULL, ALL) == []
    assert unsupported_delegate_features(FULL, DelegateNeeds(continuation=True)) == []


def test_a_backend_offers_nothing_that_it_doesnt_declare() -> None:
    assert unsupported_root_features(REMOTE_STATELESS_TEXT, ALL) == FEATURES
    assert unsupported_root_features(REMOTE_STATELESS_TEXT, RootNeeds()) == []


@pytest.mark.parametrize("name", SWITCHES)
def test_each_feature_is_needed_and_offered_by_itself(name: str) -> None:
    needs = replace(RootNeeds(), **{name: True})
    assert unsupported_root_features(Capabilities(), needs) == [name]
    offers: dict[str, Any] = {name: True}
    assert unsupported_root_features(Capabilities(**offers), needs) == []
    without = replace(FULL, **{**offers, name: False})
    assert unsupported_root_features(without, ALL) == [name]
    assert unsupported_root_features(without, RootNeeds()) == []


@pytest.mark.parametrize("continuation", list(Continuation))
def test_a_run_can_continue_if_either_side_stores_its_state(continuation: Continuation) -> None:
    lacks = ["continuation"] if continuation is Continuation.NONE else []
    offered = Capabilities(continuation=continuation)
    assert unsupported_root_features(offered, RootNeeds(continuation=True)) == lacks
    assert unsupported_delegate_features(offered, DelegateNeeds(continuation=True)) == lacks
    assert unsupported_root_features(offered, RootNeeds()) == []
    assert unsupported_delegate_features(offered, DelegateNeeds()) == []


@pytest.mark.parametrize(
    "cancellation, token, abort",
    [
        (Cancellation.NONE, False, False),
        (Cancellation.COOPERATIVE_TOKEN, True, False),
        (Cancellation.REMOTE_ABORT, False, True),
        (Cancellation.COOPERATIVE_TOKEN_AND_REMOTE_ABORT, True, True),
    ],
)
def test_a_run_can_be_stopped_in_two_ways(
    cancellation: Cancellation, token: bool, abort: bool
) -> None:
    assert cancellation.supports_cooperative_token is token
    assert cancellation.supports_remote_abort is abort


def test_a_refusal_names_all_that_is_lacking() -> None:
    message = unsupported_message(AgentId("far"), ["decisions", "limits"])
    assert message == "agent 'far' backend does not support: decisions, limits"
