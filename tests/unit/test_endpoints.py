"""Endpoints as JSON omit defaults and survive a round trip."""

import pytest

from app.domain.agents.endpoints import Endpoint, endpoint_from_json, endpoint_to_json

BARE = Endpoint(backend="a2a", url="https://agents.test")
FULL = Endpoint(
    backend="a2a",
    url="https://agents.test",
    target="clerk",
    auth_env="TOKEN",
    timeout=5.0,
    options={"poll": 1},
)


def test_defaults_are_left_out() -> None:
    assert endpoint_to_json(BARE) == {"backend": "a2a", "url": "https://agents.test"}


def test_set_fields_are_written() -> None:
    assert endpoint_to_json(FULL) == {
        "backend": "a2a",
        "url": "https://agents.test",
        "target": "clerk",
        "auth_env": "TOKEN",
        "timeout": 5.0,
        "options": {"poll": 1},
    }


@pytest.mark.parametrize("endpoint", [BARE, FULL])
def test_an_endpoint_can_be_read_back(endpoint: Endpoint) -> None:
    assert endpoint_from_json(endpoint_to_json(endpoint)) == endpoint
