"""Models are named, checked, built once and closed together."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.llm.catalog import ModelCatalog, api_key_of, problem_of
from app.llm.openai.model import OpenAICompatibleModel
from app.llm.specs import ModelSpec, spec_from_table, specs_from_environment
from tests.support.transcripts import asking, collect

pytestmark = pytest.mark.anyio

LOCAL = ModelSpec(name="m", provider="openai", model="x", base_url="http://127.0.0.1:1/v1")


def spec(**fields: Any) -> ModelSpec:
    return ModelSpec(**{"name": "m", "provider": "openai", "model": "x", **fields})


async def test_a_model_is_built_once() -> None:
    catalog = ModelCatalog([LOCAL], {})
    model = catalog.model("m")
    assert isinstance(model, OpenAICompatibleModel)
    assert model.name == "x"
    assert catalog.model("m") is model
    await catalog.aclose()


async def test_an_endpoint_may_have_its_own_headers_and_a_query() -> None:
    azure = spec(
        base_url="https://me.example/openai/deployments/d/?api-version=1",
        api_key="k",
        headers={"Authorization": "Token t", "api-key": "z"},
    )
    catalog = ModelCatalog([azure], {})
    model = catalog.model("m")
    assert isinstance(model, OpenAICompatibleModel)
    assert str(model.answers.url) == (
        "https://me.example/openai/deployments/d/chat/completions?api-version=1"
    )
    assert model.answers.headers.get_list("authorization") == ["Token t"]
    assert model.answers.headers["api-key"] == "z"
    await catalog.aclose()


async def test_the_error_for_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"'other' isn't configured \(there are: m\)"):
        ModelCatalog([LOCAL], {}).model("other")


async def test_a_scripted_model_needs_nothing() -> None:
    table = {"provider": "scripted", "delay_ms": 0, "script": "plain"}
    catalog = ModelCatalog([spec_from_table("demo", table)], {})
    assert (await collect(catalog.model("demo"), asking("hi"))).text.startswith("You said: hi")
    await catalog.aclose()


@pytest.mark.parametrize(
    "fields, environ, problem",
    [
        ({}, {}, "no API key: set OPENAI_API_KEY"),
        ({}, {"OPENAI_API_KEY": "k"}, None),
        ({"api_key": "k"}, {}, None),
        ({"api_key_env": "MINE"}, {"OPENAI_API_KEY": "k"}, "no API key: set MINE"),
        ({"base_url": "http://127.0.0.1:11434/v1"}, {}, None),
        ({"base_url": "localhost:11434"}, {}, "isn't an http(s) address"),
        ({"api_key": "k\u2026"}, {}, "characters that HTTP can't carry"),
        ({"api_key": "k", "headers": {"x": "a\nb"}}, {}, "characters that HTTP can't carry"),
        ({"provider": "anthropic"}, {}, "no API key: set ANTHROPIC_API_KEY"),
        ({"provider": "google"}, {}, "set GOOGLE_API_KEY or GEMINI_API_KEY"),
        ({"provider": "google"}, {"GEMINI_API_KEY": "k"}, None),
        ({"provider": "pydantic-ai"}, {}, 'model must be "provider:model"'),
        ({"provider": "scripted", "options": {"script": "nope"}}, {}, "isn't one of demo, plain"),
        ({"provider": "scripted", "options": {"delay_ms": -1}}, {}, "number of milliseconds"),
    ],
)
async def test_missing_settings_are_found_without_building_a_model(
    fields: dict[str, Any], environ: Mapping[str, str], problem: str | None
) -> None:
    found = problem_of(spec(**fields), environ)
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith("[models.m] ")
        assert problem in found


async def test_the_key_of_openai_is_sent_to_openai_only() -> None:
    assert api_key_of(LOCAL, {"OPENAI_API_KEY": "k"}) is None
    assert api_key_of(spec(), {"OPENAI_API_KEY": " k\n"}) == "k"


@pytest.mark.parametrize(
    "fields, problem",
    [
        ({"provider": "missing"}, r"\[models.m\] provider 'missing' is unknown"),
        ({"provider": "pydantic-ai", "model": "missing:x"}, "provider 'missing' is unknown"),
        ({"provider": "groq"}, "provider 'groq' isn't installed"),
        ({"provider": "google", "api_key": "k", "base_url": "nowhere"}, "isn't an http"),
    ],
)
async def test_an_unusable_provider_is_an_error_when_its_model_is_built(
    fields: dict[str, Any], problem: str
) -> None:
    catalog = ModelCatalog([spec(**fields)], {})
    with pytest.raises(ConfigurationError, match=problem):
        catalog.model("m")
    assert catalog.problem("m") is not None


@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")  # Google's SDK, once
@pytest.mark.parametrize(
    "provider, model",
    [
        ("google", "gemini-3.5-flash"),
        ("google-cloud", "gemini-3.5-flash"),
        ("anthropic", "claude-sonnet-5-5"),
    ],
)
async def test_other_providers_are_built(provider: str, model: str) -> None:
    catalog = ModelCatalog([spec(provider=provider, model=model, api_key="k")], {})
    assert catalog.model("m").name == model
    assert catalog.problem("m") is None
    await catalog.aclose()


def test_no_sdk_is_imported_before_a_model_needs_it() -> None:
    program = (
        "import sys, app.llm.catalog; "
        "sys.exit(any(name.partition('.')[0] in {'pydantic_ai', 'openai', 'anthropic', 'google'}"
        " for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_models_can_come_from_the_environment_alone() -> None:
    assert specs_from_environment({}) == ()
    environ = {
        "OPENAI_API_KEY": "k",
        "HOLDFAST_OPENAI_MODEL": "gpt-x",
        "ANTHROPIC_API_KEY": "k",
    }
    found = specs_from_environment(environ)
    assert [(s.name, s.provider) for s in found] == [
        ("openai", "openai"),
        ("anthropic", "anthropic"),
    ]
    assert found[0].model == "gpt-x"
    assert found[1].model.startswith("claude-")
    assert [problem_of(s, environ) for s in found] == [None, None]


def test_a_table_of_agents_toml_becomes_a_spec() -> None:
    table = {
        "provider": "openai",
        "model": "fake-20",
        "base_url": "http://127.0.0.1:9911/v1",
        "api_key": "unused",
        "headers": {"x-title": "t"},
        "idle_timeout": 5,
        "options": {"temperature": 0},
    }
    made = spec_from_table("fake-20", table)
    assert (made.name, made.model, made.idle_timeout) == ("fake-20", "fake-20", 5.0)
    assert made.options == {"temperature": 0}
    assert "unused" not in repr(made)


@pytest.mark.parametrize(
    "table, problem",
    [
        ({"model": "x"}, r"\[models.m\] needs a provider"),
        ({"provider": "openai"}, r"\[models.m\] needs a model"),
        ({"provider": "openai", "model": "x", "temperature": 0}, "'temperature'.*models.m.options"),
        ({"provider": "openai", "model": "x", "delay_ms": 3}, "'delay_ms'"),
        ({"provider": "openai", "model": "x", "timeout": 0}, "timeout must be a number of seconds"),
        ({"provider": "openai", "model": 7}, "model must be a string"),
        ({"provider": "openai", "model": "x", "headers": {"a": 1}}, "a must be a string"),
        ({"provider": "openai", "model": "x", "options": []}, "options must be a table"),
    ],
)
def test_an_invalid_table_is_an_error_with_its_key(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        spec_from_table("m", table)
