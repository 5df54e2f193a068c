"""Agents files: what a valid file gives, and that each error names its place and its remedy."""

import json
import re
from pathlib import Path

import pytest

from app.agents.catalog import load_catalog
from app.domain.agents.specs import AgentSpec, agent_from_json, agent_to_json
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId
from app.domain.tickets.terms import ApproverRule, OnExpiry
from app.domain.tools.tool_calls import Effect
from app.llm.specs import ModelSpec, specs_from_environment
from tests.support.agents_files import AGENT, MODELS, TOOLS, load, problems


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    return tmp_path


# --- valid files ----------------------------------------------------------------------------------


def test_agents_come_in_the_order_of_the_file_with_all_their_keys(folder: Path) -> None:
    catalog = load(
        folder,
        MODELS
        + """
        [tools]
        modules = ["my_tools"]
        [agents.writer]
        model = "fast"
        system_prompt = "Write."
        description = "Writes."
        tools = ["look", "add"]
        approval = ["add"]
        max_rounds = 3
        [agents.a]
        model = "fast"
        """,
    )
    writer = AgentSpec(
        id=AgentId("writer"),
        model="fast",
        system_prompt="Write.",
        description="Writes.",
        tools=("look", "add"),
        approval=("add",),
        max_rounds=3,
    )
    assert list(catalog.agents.items()) == [
        ("writer", writer),
        ("a", AgentSpec(id=AgentId("a"), model="fast")),
    ]
    assert catalog.models["fast"].model == "fast-1"
    assert set(catalog.tools) == {"add", "look"}
    assert catalog.tools["look"].descriptor.effect is Effect.READ


def test_a_catalog_cannot_be_changed(folder: Path) -> None:
    catalog = load(folder, MODELS + AGENT)
    with pytest.raises(TypeError):
        catalog.agents[AgentId("x")] = catalog.agents[AgentId("helper")]  # type: ignore[index]  # the case


def test_a_delegate_may_work_in_the_background(folder: Path) -> None:
    scout = '[agents.scout]\nmodel = "fast"\n'
    delegating = 'delegates = ["scout"]\nbackground = ["agent_run_scout"]\n'
    loaded = load(folder, MODELS + AGENT + delegating + scout)
    assert loaded.agents[AgentId("helper")].background == ("agent_run_scout",)


def test_a_model_may_come_from_the_environment(folder: Path) -> None:
    file = folder / "agents.toml"
    file.write_text('[agents.helper]\nmodel = "openai"\n')
    models = specs_from_environment({"OPENAI_API_KEY": "key"})
    assert load_catalog(file, default_models=models).models["openai"].provider == "openai"


def test_a_model_of_the_file_replaces_one_of_the_environment(folder: Path) -> None:
    file = folder / "agents.toml"
    file.write_text(MODELS + AGENT)
    other = ModelSpec(name="fast", provider="anthropic", model="other")
    assert load_catalog(file, default_models=[other]).models["fast"].provider == "openai"


def test_a_byte_order_mark_is_no_syntax_error(folder: Path) -> None:
    (folder / "agents.toml").write_text("\ufeff" + (MODELS + AGENT).lstrip(), encoding="utf-8")
    assert load_catalog(folder / "agents.toml").agents


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "sentence", "remedy"),
    [
        (
            MODELS + '[agents.a]\nmodel = "fats"',
            "agents.a.model",
            "there is no model 'fats'",
            "did you mean 'fast'?; add [models.fats] or name another",
        ),
        (
            '[agents.a]\nmodel = "x"',
            "agents.a.model",
            "there is no model 'x'",
            "there are none; add [models.x] or name another",
        ),
        (
            MODELS + '[tools]\nmodules = ["my_tools"]' + AGENT + 'tools = ["add", "fly"]',
            "agents.helper.tools[1]",
            "there is no tool 'fly', known: add, look",
            "define it in a module of tools.modules or remove it",
        ),
        (
            MODELS + AGENT + 'tools = ["add"]',
            "agents.helper.tools[0]",
            "there is no tool 'add', there are none",
            "define it in a module of tools.modules or remove it",
        ),
        (
            MODELS
            + '[tools]\nmodules = ["my_tools"]'
            + AGENT
            + 'tools = ["add"]\napproval = ["look"]',
            "agents.helper.approval[0]",
            "the agent has no tool 'look'",
            "add it to the agent's tools or remove it here",
        ),
        (
            MODELS + '[tools]\nmodules = ["my_tools"]' + AGENT + 'tools = ["add", "add"]',
            "agents.helper.tools[1]",
            "'add' is listed twice",
            "remove one of them",
        ),
        (
            MODELS + '[tools]\nmodules = ["my_tools", "my_tools"]' + AGENT,
            "tools.modules[1]",
            "'my_tools' is listed twice",
            "remove one of them",
        ),
        (
            MODELS + AGENT + "max_rounds = 0",
            "agents.helper.max_rounds",
            "greater than or equal to 1",
            "correct the value",
        ),
        (
            MODELS + AGENT + 'max_rounds = "3"',
            "agents.helper.max_rounds",
            "must be a number without quotes and unit",
            "write max_rounds = 3",
        ),
        (
            MODELS + AGENT + "max_rounds = true",
            "agents.helper.max_rounds",
            "should be a valid integer",
            "correct the value",
        ),
        (
            MODELS + AGENT + "system_prompt = 5",
            "agents.helper.system_prompt",
            "must be a string",
            "write it in quotes",
        ),
        (
            MODELS + AGENT + 'tools = "add"',
            "agents.helper.tools",
            "must be a list",
            'write ["…", "…"]',
        ),
        (
            MODELS + AGENT + "tools = [1]",
            "agents.helper.tools[0]",
            "must be a string",
            "write it in quotes",
        ),
        (
            MODELS + AGENT + 'aproval = ["add"]',
            "agents.helper.aproval",
            "unknown key",
            "did you mean 'approval'?",
        ),
        (
            MODELS + AGENT + 'webhook = "x"',
            "agents.helper.webhook",
            "unknown key",
            "known: model, endpoint, system_prompt, description, tools, approval,",
        ),
        (
            MODELS + '[agents.far.endpoint]\nbackend = "pigeon"\nurl = "http://far.test"',
            "agents.far.endpoint.backend",
            "there is no backend 'pigeon'",
            "there are none",
        ),
        (
            MODELS + '[agents.far.endpoint]\nbackend = "a2a"\nurl = "far.test"',
            "agents.far.endpoint.url",
            "should match pattern",
            "correct the value",
        ),
        (
            MODELS + AGENT + '[agents.helper.endpoint]\nbackend = "a2a"\nurl = "http://far.test"',
            "agents.helper.model",
            "means nothing for an agent behind an endpoint",
            "remove it",
        ),
        ("[agents.a]", "agents.a.model", "is missing", 'add model = "…"'),
        (
            '[agents.a]\nmodel = ""',
            "agents.a.model",
            "must not be empty",
            "write a name or leave the key out",
        ),
        (
            MODELS + '[agents."a b"]\nmodel = "fast"',
            "agents.a b",
            "1 to 64 of A-Z a-z 0-9",
            "rename it",
        ),
        ("agents = 1", "agents", "must be a table of tables", "write [agents.<name>]"),
        (
            "[agents]\na = 1",
            "agents.a",
            "must be a table",
            "write its keys under a header in [brackets]",
        ),
        ("", "agents", "there are none", "add [agents.<name>]"),
        (MODELS + AGENT + "[model.x]", "model", "unknown section", "did you mean 'models'?"),
        (MODELS + AGENT + "[tools]\nmodule = []", "tools.module", "unknown key", "modules"),
        (AGENT + "[models.fast]", "models.fast", "needs a provider", '"openai"'),
        (AGENT + "[models]\nfast = 1", "models.fast", "must be a table", "[models.fast]"),
        (
            MODELS + 'bas_url = "x"' + AGENT,
            "models.fast",
            "has the key 'bas_url'",
            "go into [models.fast.options]",
        ),
        (
            MODELS + AGENT + '[tools]\nmodules = ["gone"]',
            "tools.modules[0]",
            "there is no module 'gone' beside the agents file",
            "gone.py",
        ),
        (
            MODELS + AGENT + '[tools]\nmodules = ["../my_tools"]',
            "tools.modules[0]",
            "'../my_tools' isn't a module's name",
            "write it as in an import",
        ),
    ],
)
def test_a_problem_names_the_key_the_error_and_the_remedy(
    folder: Path, text: str, key: str, sentence: str, remedy: str
) -> None:
    found = problems(folder, text)
    assert [line for line in found if line.startswith(f"{key}: ")] == found[:1]
    assert sentence in found[0]
    assert remedy in found[0]


def test_every_problem_is_reported_at_once(folder: Path) -> None:
    found = problems(
        folder,
        """
        [models.slow]
        provider = 5
        [tools]
        modules = ["gone", "my_tools"]
        [agents.a]
        model = "none"
        max_rounds = -1
        color = "red"
        [agents.b]
        model = "none"
        approval = ["add", "add"]
        """,
    )
    assert [line.partition(": ")[0] for line in found] == [
        "models.slow",
        "agents.a.max_rounds",
        "agents.a.color",
        "tools.modules[0]",
        "agents.b.model",
        "agents.b.approval[1]",
        "agents.b.approval[0]",
        "agents.b.approval[1]",
    ]


def test_a_problem_elsewhere_does_not_make_names_unknown(folder: Path) -> None:
    found = problems(
        folder,
        '[models.fast]\nprovider = 5\n[tools]\nmodules = ["gone"]' + AGENT + 'tools = ["add"]',
    )
    assert [line.partition(": ")[0] for line in found] == ["models.fast", "tools.modules[0]"]


def test_a_key_given_as_the_wrong_type_is_not_repeated(folder: Path) -> None:
    found = problems(folder, MODELS.replace('"unused"', '["se", "cret"]') + AGENT)
    assert len(found) == 1
    assert "api_key" in found[0]
    assert "cret" not in found[0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[agents.a]\nmodel = "x\n', r"isn't TOML: .*line 2"),
        ("[agents.a]\n[agents.a]\n", r"isn't TOML: .*agents.*line 2"),
        ("[agents.a]\nmodel = 'x'\nmodel = 'y'\n", r"isn't TOML: .*line 3"),
    ],
)
def test_a_syntax_error_names_its_line(folder: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"agents\.toml: {sentence}"):
        load(folder, text)


def test_an_error_for_a_missing_file_names_its_path(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    with pytest.raises(ConfigurationError, match=re.escape(f"{file}: can't be read (No such file")):
        load_catalog(file)
    with pytest.raises(ConfigurationError, match="HOLDFAST_AGENTS"):
        load_catalog(tmp_path)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_bytes(b'[agents.a]\nmodel = "\xe4"\n')
    with pytest.raises(ConfigurationError, match="isn't UTF-8 text; save it as UTF-8"):
        load_catalog(tmp_path / "agents.toml")


# --- terms of tickets -----------------------------------------------------------------------------

TERMS = """
tools = ["add", "look"]
approval = ["add"]
ticket_expires_in = 3600
on_expiry = "cancel_run"
approvers.add = { scope = "approve:money", not_starter = true, quorum = 2 }
"""


def test_an_agent_names_who_may_decide_and_the_deadline(folder: Path) -> None:
    text = MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + TERMS
    [spec] = load(folder, text).agents.values()
    terms = spec.ticket_terms("add", {})
    assert (terms.expires_in, terms.on_expiry) == (3600, OnExpiry.CANCEL_RUN)
    assert terms.approvers == ApproverRule(scope="approve:money", not_starter=True, quorum=2)
    assert spec.ticket_terms("look", {}).approvers is None
    asked_for = spec.ticket_terms("add", {"expires_in": 5, "on_expiry": "keep"})
    assert (asked_for.expires_in, asked_for.on_expiry) == (5, OnExpiry.KEEP)
    assert agent_from_json(json.loads(json.dumps(agent_to_json(spec)))) == spec


def test_an_agent_without_terms_has_the_version_that_it_always_had() -> None:
    spec = AgentSpec(id=AgentId("a"), model="m")
    assert agent_to_json(spec) == {"id": "a", "model": "m"}


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("approvers.gone = {}", "agents.helper.approvers.gone: the agent has no tool"),
        ("approvers.look = { quorum = 2 }", "approvers.look: calls of 'look' run without a ticket"),
        ("approvers.add = { quorum = 0 }", "agents.helper.approvers.add.quorum: "),
        ('approvers.add = { scope = "mony" }', "agents.helper.approvers.add.scope: "),
        ("ticket_expires_in = 0", "agents.helper.ticket_expires_in: "),
        ('on_expiry = "explode"', "agents.helper.on_expiry: "),
    ],
)
def test_invalid_ticket_terms_are_reported(folder: Path, wrong: str, message: str) -> None:
    own = 'tools = ["add", "look"]\napproval = ["add"]\n' + wrong
    text = MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + own
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        load(folder, text)


# --- permission -----------------------------------------------------------------------------------


def test_an_agent_has_rules_in_its_file(folder: Path) -> None:
    own = 'tools = ["add"]\n[agents.helper.plugins.permission]\ndefault = "deny"\n'
    own += 'rules = [{ tool = "add(a == 1)", behavior = "allow", reason = "small" }]\n'
    [spec] = load(
        folder, MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + own
    ).agents.values()
    assert spec.plugins["permission"]["default"] == "deny"


@pytest.mark.parametrize(
    "wrong, message",
    [
        ('{ tool = "add(a == b)", behavior = "deny" }', "column 10: 'b' isn't a value"),
        ('{ tool = "", behavior = "deny" }', "permission.rules[0].tool: "),
        ('{ tool = "add", behavior = "perhaps" }', "permission.rules[0].behavior: "),
        ('{ tool = "add" }', "permission.rules[0].behavior: is missing"),
    ],
)
def test_invalid_rules_are_reported(folder: Path, wrong: str, message: str) -> None:
    own = f'tools = ["add"]\nplugins.permission = {{ rules = [{wrong}] }}\n'
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        load(folder, MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + own)
