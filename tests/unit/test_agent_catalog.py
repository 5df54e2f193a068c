"""Agents files: what a right one gives, and that a wrong one is told where, what and how to mend it."""

import json
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from app.agents.catalog import Catalog, load_catalog
from app.agents.demo import demo_catalog
from app.domain.agents import AgentSpec, agent_from_json, agent_to_json
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId, CallId, RunId, ThreadId
from app.domain.ticket_terms import ApproverRule, OnExpiry
from app.domain.tool_calls import Effect
from app.llm.specs import ModelSpec, specs_from_environment
from app.runtime.ports import ToolContext
from app.tools.functions import FunctionTool

MODELS = """
[models.fast]
provider = "openai"
model = "fast-1"
base_url = "http://127.0.0.1:9/v1"
api_key = "unused"
"""

TOOLS = """
from app.tools.functions import tool

@tool
async def add(a: int, b: int) -> int:
    return a + b

@tool(effect="read")
def look() -> str:
    return "seen"
"""

AGENT = """
[agents.helper]
model = "fast"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    return tmp_path


def load(folder: Path, text: str, **more: str) -> Catalog:
    file = folder / "agents.toml"
    file.write_text(text)
    for name, source in more.items():
        place = folder / f"{name}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(dedent(source))
    return load_catalog(file)


def problems(folder: Path, text: str, **more: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, text, **more)
    lines = str(caught.value).splitlines()
    start = f"{folder / 'agents.toml'}: "
    assert all(line.startswith(start) for line in lines)
    return [line.removeprefix(start) for line in lines]


# --- what a right one gives -----------------------------------------------------------------------


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


def test_the_files_model_wins_over_one_of_the_environment(folder: Path) -> None:
    file = folder / "agents.toml"
    file.write_text(MODELS + AGENT)
    other = ModelSpec(name="fast", provider="anthropic", model="other")
    assert load_catalog(file, default_models=[other]).models["fast"].provider == "openai"


def test_a_byte_order_mark_is_no_syntax_error(folder: Path) -> None:
    (folder / "agents.toml").write_text("\ufeff" + (MODELS + AGENT).lstrip(), encoding="utf-8")
    assert load_catalog(folder / "agents.toml").agents


# --- what is wrong with one -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "said", "remedy"),
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
            "should be a valid integer",
            "correct the value",
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
def test_a_problem_names_the_key_what_is_wrong_and_the_remedy(
    folder: Path, text: str, key: str, said: str, remedy: str
) -> None:
    found = problems(folder, text)
    assert [line for line in found if line.startswith(f"{key}: ")] == found[:1]
    assert said in found[0]
    assert remedy in found[0]


def test_everything_that_is_wrong_is_told_at_once(folder: Path) -> None:
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
    ("text", "said"),
    [
        ('[agents.a]\nmodel = "x\n', r"isn't TOML: .*line 2"),
        ("[agents.a]\n[agents.a]\n", r"isn't TOML: .*agents.*line 2"),
        ("[agents.a]\nmodel = 'x'\nmodel = 'y'\n", r"isn't TOML: .*line 3"),
    ],
)
def test_a_syntax_error_names_its_line(folder: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"agents\.toml: {said}"):
        load(folder, text)


def test_a_file_that_cannot_be_read_says_where_it_is_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    with pytest.raises(ConfigurationError, match=re.escape(f"{file}: can't be read (No such file")):
        load_catalog(file)
    with pytest.raises(ConfigurationError, match="HOLDFAST_AGENTS"):
        load_catalog(tmp_path)


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agents.toml").write_bytes(b'[agents.a]\nmodel = "\xe4"\n')
    with pytest.raises(ConfigurationError, match="isn't UTF-8 text; save it as UTF-8"):
        load_catalog(tmp_path / "agents.toml")


# --- modules of tools -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_of_that_name", r"ModuleNotFoundError.*\(broken\.py, line 1\)"),
        ("\n1 / 0", r"ZeroDivisionError: division by zero \(broken\.py, line 2\)"),
        ("def x(:", r"SyntaxError: .*line 1"),
        ("raise SystemExit(1)", r"SystemExit: 1"),
        (
            "from app.tools.functions import tool\n@tool\ndef f(*a): ...",
            r"tool 'f': .*can't be given by name.*\(broken\.py, line 2\)",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_says_why_and_in_which_line(
    folder: Path, source: str, said: str
) -> None:
    found = problems(folder, MODELS + AGENT + '[tools]\nmodules = ["broken"]', broken=source)
    assert len(found) == 1
    file = re.escape(str(folder / "broken.py"))
    assert re.match(rf"tools\.modules\[0\]: {file} can't be imported: {said}", found[0])
    assert found[0].endswith("correct it there")


def test_a_module_without_tools_is_a_problem(folder: Path) -> None:
    found = problems(folder, MODELS + AGENT + '[tools]\nmodules = ["empty"]', empty="x = 1")
    assert found == [
        "tools.modules[0]: module 'empty' defines no tool; decorate a function with @tool"
        " (from app.tools.functions import tool)"
    ]


def test_two_tools_of_one_name_are_a_problem(folder: Path) -> None:
    text = MODELS + AGENT + '[tools]\nmodules = ["my_tools", "others"]'
    found = problems(folder, text, others=TOOLS.replace("look", "peek"))
    assert found == [
        "tools.modules[1]: module 'others' defines a tool 'add', and so does 'my_tools';"
        ' rename one: @tool(name="…")'
    ]


def test_one_tool_seen_in_two_modules_is_one_tool(folder: Path) -> None:
    text = MODELS + AGENT + '[tools]\nmodules = ["my_tools", "others"]'
    assert set(load(folder, text, others="from my_tools import add").tools) == {"add", "look"}


def test_packages_and_neighbours_can_be_imported(folder: Path) -> None:
    catalog = load(
        folder,
        MODELS + AGENT + '[tools]\nmodules = ["kit.sub", "kit", "spaced.deep"]',
        **{
            "kit/__init__": TOOLS.replace("add", "kit_add").replace("look", "kit_look"),
            "kit/sub": """
            from app.tools.functions import tool
            from neighbour import WORD
            from .names import NAME

            @tool(name=NAME)
            def say() -> str:
                from neighbour import WORD as again
                return WORD + again
            """,
            "kit/names": 'NAME = "named"',
            "neighbour": 'WORD = "hello"',
            "spaced/deep": TOOLS,
        },
    )
    assert set(catalog.tools) == {"named", "kit_add", "kit_look", "add", "look"}
    named = catalog.tools["named"]
    assert isinstance(named, FunctionTool)
    assert named() == "hellohello"


def test_the_search_path_stays_as_it_was(folder: Path) -> None:
    before = list(sys.path)
    load(folder, MODELS + AGENT + '[tools]\nmodules = ["my_tools"]')
    assert sys.path == before
    problems(folder, MODELS + AGENT + '[tools]\nmodules = ["broken"]', broken="1 / 0")
    assert sys.path == before


def test_the_same_name_in_another_folder_is_another_module(tmp_path: Path) -> None:
    found = []
    for word in ("one", "two"):
        folder = tmp_path / word
        folder.mkdir()
        catalog = load(
            folder,
            MODELS + AGENT + '[tools]\nmodules = ["same"]',
            same=f"from neighbour import tool\n@tool\ndef say_{word}(): ...",
            neighbour="from app.tools.functions import tool",
        )
        found.append(list(catalog.tools))
    assert found == [["say_one"], ["say_two"]]


def test_a_folder_may_be_known_by_several_paths_and_its_files_be_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data", "mounted"):
        (tmp_path / name).mkdir()
    (tmp_path / "also_mounted").symlink_to(tmp_path / "mounted")
    for name, text in {
        "linked_tools.py": TOOLS,
        "agents.toml": MODELS + AGENT + '[tools]\nmodules = ["linked_tools"]',
    }.items():
        (tmp_path / "data" / name).write_text(text)
        (tmp_path / "mounted" / name).symlink_to(tmp_path / "data" / name)
    monkeypatch.syspath_prepend(str(tmp_path / "also_mounted"))
    assert load_catalog(tmp_path / "mounted" / "agents.toml").tools
    assert load_catalog(tmp_path / "also_mounted" / "agents.toml").tools


@pytest.mark.parametrize("taken", ["json", "pytest", "sys"])
def test_a_name_that_python_knows_already_is_a_problem(folder: Path, taken: str) -> None:
    module = sys.modules[taken]
    text = MODELS + AGENT + f'[tools]\nmodules = ["{taken}"]'
    found = problems(folder, text, **{taken: TOOLS})
    assert found[0].startswith(f"tools.modules[0]: the name {taken!r} belongs to another module (")
    assert found[0].endswith("rename this one")
    assert sys.modules[taken] is module


# --- the demo -------------------------------------------------------------------------------------


def test_the_demo_needs_no_key() -> None:
    catalog = demo_catalog()
    [demo] = catalog.agents.values()
    assert demo.id == "demo"
    assert demo.approval == ("delete_file",)
    assert catalog.models[demo.model].provider == "scripted"
    assert catalog.models[demo.model].options == {"script": "demo", "delay_ms": 30}
    assert catalog.tools["list_files"].descriptor.effect is Effect.READ
    assert catalog.tools["delete_file"].descriptor.effect is Effect.UNSAFE


def test_a_key_in_the_environment_adds_an_agent() -> None:
    models = specs_from_environment({"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"})
    catalog = demo_catalog(default_models=models)
    assert list(catalog.agents) == ["demo", "openai", "anthropic"]
    agent = catalog.agents[AgentId("anthropic")]
    assert agent.model == "anthropic"
    assert agent.tools == catalog.agents[AgentId("demo")].tools
    assert agent.approval == ("delete_file",)


@pytest.mark.anyio
async def test_the_demo_deletes_nothing_real(tmp_path: Path) -> None:
    real = tmp_path / "real.txt"
    real.write_text("still here")
    catalog = demo_catalog()
    context = ToolContext(
        run_id=RunId("r"),
        thread_id=ThreadId("t"),
        call_id=CallId("c"),
        tool_name="delete_file",
        idempotency_key="k",
        say=lambda event: None,
    )
    result = await catalog.tools["delete_file"].execute({"path": str(real)}, context)
    assert "pretend file" in result.text
    assert real.read_text() == "still here"
    await catalog.tools["delete_file"].execute({"path": "/tmp/todo.txt"}, context)
    listed = await catalog.tools["list_files"].execute({}, context)
    assert listed.data == ["/tmp/notes.md", "/tmp/old-report.txt"]


# --- terms of tickets -----------------------------------------------------------------------------

TERMS = """
tools = ["add", "look"]
approval = ["add"]
ticket_expires_in = 3600
on_expiry = "cancel_run"
approvers.add = { scope = "approve:money", not_starter = true, quorum = 2 }
"""


def test_an_agent_says_who_may_answer_and_until_when(folder: Path) -> None:
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
    "wrong, says",
    [
        ("approvers.gone = {}", "agents.helper.approvers.gone: the agent has no tool"),
        ("approvers.look = { quorum = 2 }", "approvers.look: calls of 'look' run without anybody"),
        ("approvers.add = { quorum = 0 }", "agents.helper.approvers.add.quorum: "),
        ('approvers.add = { scope = "mony" }', "agents.helper.approvers.add.scope: "),
        ("ticket_expires_in = 0", "agents.helper.ticket_expires_in: "),
        ('on_expiry = "explode"', "agents.helper.on_expiry: "),
    ],
)
def test_terms_that_cannot_work_are_told(folder: Path, wrong: str, says: str) -> None:
    own = 'tools = ["add", "look"]\napproval = ["add"]\n' + wrong
    text = MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + own
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        load(folder, text)


# --- permission -----------------------------------------------------------------------------------


def test_an_agent_has_rules_in_its_file(folder: Path) -> None:
    own = 'tools = ["add"]\n[agents.helper.plugins.permission]\ndefault = "deny"\n'
    own += 'rules = [{ tool = "add(a = 1)", behavior = "allow", reason = "small" }]\n'
    [spec] = load(
        folder, MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + own
    ).agents.values()
    assert spec.plugins["permission"]["default"] == "deny"


@pytest.mark.parametrize(
    "wrong, says",
    [
        ('{ tool = "add(a = b)", behavior = "deny" }', "isn't a pattern"),
        ('{ tool = "", behavior = "deny" }', "permission.rules[0].tool: "),
        ('{ tool = "add", behavior = "perhaps" }', "permission.rules[0].behavior: "),
        ('{ tool = "add" }', "permission.rules[0].behavior: is missing"),
    ],
)
def test_rules_that_cannot_work_are_told(folder: Path, wrong: str, says: str) -> None:
    own = f'tools = ["add"]\nplugins.permission = {{ rules = [{wrong}] }}\n'
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        load(folder, MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + own)
