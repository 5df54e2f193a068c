"""Options of a model in the dialects of OpenAI-compatible servers."""

import json
from typing import Any

import pytest

from app.domain.inference.options import EffortName, InferenceOptions, ThinkingBudget
from app.llm.openai.options import Dialect, dialect_of, parameters_of
from app.llm.openai.request import request_body
from tests.support.transcripts import asking


@pytest.mark.parametrize(
    "base_url, parameters, key",
    [
        ("https://api.openai.com/v1", {}, "max_completion_tokens"),
        ("https://me.openai.azure.com/openai/v1", {}, "max_completion_tokens"),
        ("http://127.0.0.1:11434/v1", {}, "max_tokens"),
        ("https://notopenai.com/v1", {}, "max_tokens"),
        ("http://127.0.0.1:8000/v1", {"max_completion_tokens": 9}, "max_completion_tokens"),
        ("https://api.openai.com/v1", {"max_tokens": 9}, "max_tokens"),
    ],
)
def test_the_token_limit_has_the_key_of_its_dialect(
    base_url: str, parameters: dict[str, Any], key: str
) -> None:
    sent = parameters_of(InferenceOptions(max_tokens=5), dialect_of(base_url, parameters))
    assert sent == {key: 5}


@pytest.mark.parametrize(
    "base_url, effort, sent",
    [
        ("https://api.openai.com/v1", "max", {"reasoning_effort": "xhigh"}),
        ("http://127.0.0.1:8000/v1", "max", {"reasoning_effort": "high"}),
        ("http://127.0.0.1:8000/v1", "none", {"reasoning_effort": "none"}),
    ],
)
def test_efforts_stop_at_the_servers_highest(
    base_url: str, effort: EffortName, sent: dict[str, Any]
) -> None:
    assert (
        parameters_of(InferenceOptions(reasoning_effort=effort), dialect_of(base_url, {})) == sent
    )


@pytest.mark.parametrize(
    "tokens, effort", [(1, "low"), (2048, "low"), (9000, "medium"), (10**6, "high")]
)
def test_a_budget_becomes_an_effort_for_providers_without_budgets(tokens: int, effort: str) -> None:
    options = InferenceOptions(reasoning_effort=ThinkingBudget(tokens))
    assert parameters_of(options, Dialect()) == {"reasoning_effort": effort}
    openrouter = dialect_of("https://openrouter.ai/api/v1", {})
    assert parameters_of(options, openrouter) == {"reasoning": {"max_tokens": tokens}}


def test_options_of_a_request_replace_those_of_its_endpoint() -> None:
    options = InferenceOptions(upstream_model="big", temperature=0.0)
    body = request_body(asking("hi", options=options), "small", {"temperature": 1, "seed": 7})
    sent = json.loads(body)
    assert (sent["model"], sent["temperature"], sent["seed"]) == ("big", 0.0, 7)
