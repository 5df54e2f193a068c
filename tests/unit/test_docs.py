"""The documents match the code: settings, events, errors, bounds, guarantees, files and links."""

import ast
import importlib
import json
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import jsonschema_rs
import pytest
from msgspec.structs import fields
from pydantic import BaseModel

from app.agents.catalog import load_catalog
from app.agents.file_schema import AgentEntry, OptionsEntry, RetryEntry
from app.agents.mcp_entries import McpEntry
from app.api.schemas.common import MAX_DEPTH, MAX_FIELDS
from app.api.schemas.inputs import InputsIn
from app.api.schemas.messages import NewMessage
from app.bootstrap.agents import known_backends
from app.cli.environment import variables
from app.domain.agents.specs import AgentSpec
from app.domain.agents.tool_search import ToolSearchPolicy
from app.domain.events.run_events import IDENTITY
from app.domain.ids import AgentId
from app.domain.memories.memories import MemoryPolicy
from app.domain.runs.runs import RUN_TRANSITIONS, WaitingReason
from app.domain.structs import replace
from app.domain.tickets.tickets import TICKET_TRANSITIONS, TicketKind
from app.http.error_codes import CODES, CODES_BEFORE_ROUTES
from app.http.error_help.pages import remedies
from app.http.limits.body_size import MAX_PATH_LENGTH, MAX_QUERY_LENGTH
from app.http.limits.connections import MAX_HEAD_BYTES
from app.http.limits.json_bounds import MAX_NUMBER_LENGTH, MAX_VALUES
from app.llm.specs import _KEYS as MODEL_KEYS
from app.llm.specs import _SCRIPTED_KEYS as SCRIPTED_KEYS
from app.runtime.plugins import Phase
from app.storage.page_rows import MAX_PAGE_BYTES
from app.tools.mcp.server_spec import Grant
from app.tools.schemas.subset import KEYWORDS
from docs.generate import (
    DOCS,
    PAGES,
    event_notes,
    event_types,
    log_event_meanings,
    logged_events,
)
from tests.support.documents import ROOT, block_after, page, pages, part
from tests.support.skills import write_skill

_PATHS = re.compile(r"\b((?:app|tests|docs|bench|migrations|holdfast)/[\w./-]*\w)")
_LINKS = re.compile(r"\]\(([^)\s]+)\)")
_HEADINGS = re.compile(r"^#+ (.+)$", re.M)
_PARAMETER = re.compile(r"\{\w+\}")
_CODE = re.compile(r"^```(python|toml)\n(.*?)^```", re.M | re.S)
_WITHOUT_A_ROUTE = {"not_found", "headers_too_large"}
_MAX_README_LINES = 150

S = TypeVar("S", bound=StrEnum)


# --- generated pages ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_that_of_the_code(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run `make reference` and commit the page"


def test_every_event_has_an_occasion_and_an_example_with_its_fields() -> None:
    notes, types = event_notes(), event_types()
    assert notes.keys() == types.keys()
    for name, entry in notes.items():
        assert entry["when"]
        assert types[name].__doc__, "the OpenAPI document shows it"
        # Readers get the identity only with `include=trace`.
        has_identity = IDENTITY in types[name].__struct_fields__
        unshown: dict[str, Any] = {IDENTITY: {}} if has_identity else {}
        types[name](**unshown, **json.loads(entry["example"], strict=False))


def _events_validator() -> jsonschema_rs.Validator:
    document = json.loads((ROOT / "tests" / "snapshots" / "openapi.json").read_text())
    return jsonschema_rs.validator_for(
        {"$ref": "#/components/schemas/AgentEvent", "components": document["components"]}
    )


def test_the_example_of_every_event_matches_the_schema() -> None:
    validator = _events_validator()
    for name, entry in event_notes().items():
        event = {"event_type": name, **json.loads(entry["example"], strict=False)}
        assert [error.message for error in validator.iter_errors(event)] == [], name
        assert not validator.is_valid({**event, "event_type": "another"})
        for field in fields(event_types()[name]):
            if field.required and field.name != IDENTITY:
                without = {key: value for key, value in event.items() if key != field.name}
                assert not validator.is_valid(without), f"{name} without {field.name}"


def test_a_client_that_follows_the_page_on_events_shows_each_word_once() -> None:
    [(_, reader)] = _CODE.findall(page("docs/reference/events.md"))
    words = [f"word{number} " for number in range(200)]

    def deltas(some: list[str]) -> list[dict[str, str]]:
        return [{"event_type": "text_delta", "delta": word} for word in some]

    step, reset = {"event_type": "step_start"}, {"event_type": "stream_reset"}
    unknown = {"event_type": "of_a_later_version", "delta": "no text"}
    events = [step, *deltas(words[:80]), {"event_type": "step_end"}]
    events += [step, *deltas(words[80:135]), unknown, reset, *deltas(words[80:])]
    shown: dict[str, Any] = {"events": events}
    exec(reader, shown)
    assert shown["text"] == "".join(words)


def test_every_error_code_has_a_remedy() -> None:
    assert remedies().keys() == CODES.keys() | CODES_BEFORE_ROUTES.keys()


def test_every_log_event_has_a_meaning() -> None:
    assert log_event_meanings().keys() == logged_events().keys()


# --- what the pages name --------------------------------------------------------------------------


def test_the_readme_is_short() -> None:
    assert len(page("README.md").splitlines()) <= _MAX_README_LINES


def test_every_path_in_the_documents_exists() -> None:
    missing = [
        f"{file.relative_to(ROOT)}: {path}"
        for file in pages()
        for path in _PATHS.findall(_LINKS.sub("", file.read_text()))
        if not (ROOT / path).exists()
    ]
    assert not missing


def test_every_function_that_is_named_with_its_file_is_there() -> None:
    """As in: `model_view` and `request_for` in `app/runtime/inference/request.py`."""
    named = [
        (name, path)
        for file in pages()
        for names, path in re.findall(
            r"((?:`\w+`(?:,| and)? )+)in\s`(app/[\w/]+\.py)`", file.read_text()
        )
        for name in re.findall(r"\w+(?=`)", names)
    ]
    assert len(named) >= 3
    missing = [
        (name, path)
        for name, path in named
        if not re.search(rf"^(async def|def|class) {name}\b", page(path), re.M)
    ]
    assert not missing


def test_every_link_leads_to_a_page_and_a_heading() -> None:
    broken = [
        f"{file.relative_to(ROOT)}: {link}"
        for file in pages()
        for link in _LINKS.findall(file.read_text())
        if not link.startswith("http") and not _leads_somewhere(file, link)
    ]
    assert not broken


def _leads_somewhere(file: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (file.parent / name).resolve() if name else file
    if not target.exists():
        return False
    return not anchor or anchor in {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADINGS.findall(target.read_text())
    }


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r'"([\w/-]+\.md)"', page("zensical.toml")))
    assert listed == {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")}


def test_every_route_in_the_documents_exists() -> None:
    document = json.loads(page("tests/snapshots/openapi.json"))
    routes = {
        f"{method.upper()} {_PARAMETER.sub('{}', path)}"
        for path, operations in document["paths"].items()
        for method in operations
    }
    named = _in_backticks(r"((?:GET|POST|PATCH|DELETE) /v1/[^`?\s]*)[^`]*")
    assert {route for route in named if _PARAMETER.sub("{}", route) not in routes} == set()


def test_every_setting_in_the_documents_exists() -> None:
    named = {name for file in pages() for name in re.findall(r"HOLDFAST_[A-Z_]+", file.read_text())}
    named -= {"HOLDFAST_RENEW_SNAPSHOTS"}  # of the tests
    assert named <= {variable.name for variable in variables()}


def test_every_refusal_in_the_documents_has_its_status() -> None:
    """`invalid_request` and others are in the table; `not_found` and the like belong to no route."""
    written = "\n".join(file.read_text() for file in pages())
    wrong = {
        (code, status)
        for status, code in re.findall(r"\b([45]\d\d) `([a-z_]+)`", written)
        if code not in _WITHOUT_A_ROUTE and CODES.get(code, (0, ""))[0] != int(status)
    }
    assert not wrong


def _in_backticks(pattern: str) -> set[str]:
    return {found for file in pages() for found in re.findall(f"`{pattern}`", file.read_text())}


def test_every_guarantee_names_files_and_tests_that_are_there() -> None:
    rows = re.findall(r"^\| (I\d+) \|.*\| (.*) \|$", page("docs/explanation/guarantees.md"), re.M)
    assert [number for number, _ in rows] == [f"I{count}" for count in range(1, 13)]
    sources = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    for number, tests in rows:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, number
        for name in names:
            assert re.search(rf"def {name}\b", sources), f"{number}: {name}"


# --- tables and diagrams --------------------------------------------------------------------------


def test_the_diagrams_of_states_are_those_of_the_code() -> None:
    _compare("states of a run", RUN_TRANSITIONS)
    _compare("states of a ticket", TICKET_TRANSITIONS)


def _compare(mark: str, transitions: Mapping[S, frozenset[S]]) -> None:
    """Diagrams omit transitions from a state to itself."""
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)$", block_after(STATES, mark), re.M))
    assert drawn == {
        (before.value, after.value)
        for before, others in transitions.items()
        for after in others - {before}
    }


def test_every_reason_to_wait_and_every_kind_of_ticket_is_listed() -> None:
    named = set(re.findall(r"`(\w+)`", STATES))
    assert named >= {reason.value for reason in WaitingReason}
    assert named >= {kind.value for kind in TicketKind}


STATES = page("docs/explanation/states.md")
BOUNDS = page("docs/reference/bounds.md")
AGENTS_FILE = page("docs/reference/agents-file.md")


def test_the_bounds_of_a_request_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| (.*?) \| ([\d,]+)\b.*? \| \d+ `\w+` \|$", BOUNDS, re.M))
    assert {what: int(bound.replace(",", "")) for what, bound in rows.items()} == {
        "Values in a JSON body, on all levels together": MAX_VALUES,
        "Characters of a number in a JSON body": MAX_NUMBER_LENGTH,
        "Levels of free JSON, such as metadata or a result": MAX_DEPTH,
        "Fields of an object that isn't free JSON": MAX_FIELDS,
        "Messages of a request": _max_length(InputsIn, "messages"),
        "Parts of a message": _max_length(NewMessage, "content"),
        "The query of an address": MAX_QUERY_LENGTH,
        "The path of an address": MAX_PATH_LENGTH,
        "Address and headers together": MAX_HEAD_BYTES,
    }
    assert f"{MAX_PAGE_BYTES:,} bytes" in BOUNDS


def _max_length(request: type[BaseModel], field: str) -> int:
    """The largest length of a list, at any depth of the field's schema."""
    [bound] = re.findall(
        r'"maxItems": (\d+)', json.dumps(request.model_json_schema()["properties"][field])
    )
    return int(bound)


def test_the_table_of_model_keys_is_complete() -> None:
    written = part(AGENTS_FILE, "keys of a model", "end of model keys")
    named = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| ([^|]*) \|", written, re.M)))
    assert sorted(named) == sorted({*MODEL_KEYS, *SCRIPTED_KEYS})


def test_the_table_of_agent_keys_is_complete() -> None:
    written = part(AGENTS_FILE, "keys of an agent", "end of keys")
    rows = re.findall(r"^\| `(\w+)` \|", written, re.M)
    assert sorted(rows) == sorted(AgentEntry.model_fields)
    for table, entry in (("options", OptionsEntry), ("retry", RetryEntry)):
        [row] = [line for line in written.splitlines() if line.startswith(f"| `{table}` |")]
        assert set(entry.model_fields) <= set(re.findall(r"`(\w+)`", row))


def test_the_table_of_keys_of_an_mcp_server_is_complete() -> None:
    written = part(AGENTS_FILE, "keys of an MCP server", "end of server keys")
    assert sorted(re.findall(r"^\| `(\w+)` \|", written, re.M)) == sorted(McpEntry.model_fields)


def test_the_table_of_json_schema_has_every_keyword_that_clients_may_use() -> None:
    written = AGENTS_FILE.partition("<!-- the subset of JSON Schema -->")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*`) \|", written, re.M)
    assert sorted(word for row in rows for word in re.findall(r"`([$\w]+)`", row)) == sorted(
        KEYWORDS
    )


# --- snippets that are loaded ---------------------------------------------------------------------


@pytest.mark.parametrize("file", pages(), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_snippet_compiles_and_its_imports_exist(file: Path) -> None:
    for language, code in _CODE.findall(file.read_text()):
        if language == "toml":
            tomllib.loads(code)
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), node.module


def test_the_agents_file_of_the_readme_is_loaded_with_its_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    readme = page("README.md")
    (tmp_path / "agents.toml").write_text(block_after(readme, "agents file"))
    (tmp_path / "shop_tools.py").write_text(block_after(readme, "tool module"))
    [support] = load_catalog(tmp_path / "agents.toml").agents.values()
    assert (support.id, support.tools) == ("support", ("refund",))


def test_the_agents_files_that_are_shown_are_right(tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    model = '[models.gpt]\nprovider = "scripted"\n'
    delegates = page("docs/how-to/delegates.md")
    file.write_text(model + block_after(delegates, "agents that work for agents"))
    team = load_catalog(file).agents
    assert team[AgentId("editor")].delegates == ("researcher", "lawyer")
    file.write_text(block_after(page("docs/how-to/remote-agents.md"), "agents elsewhere"))
    far = load_catalog(file, endpoints=known_backends()).agents
    backends = [agent.endpoint.backend for agent in far.values() if agent.endpoint is not None]
    assert backends == ["a2a", "holdfast"]


def test_the_mcp_servers_of_the_guide_are_ten_lines_that_can_be_loaded(tmp_path: Path) -> None:
    written = block_after(page("docs/how-to/mcp.md"), "three servers")
    servers = written.partition("[agents.")[0].split("\n")
    assert len([line for line in servers if line]) <= 10
    (tmp_path / "agents.toml").write_text('[models.gpt]\nprovider = "scripted"\n' + written)
    catalog = load_catalog(tmp_path / "agents.toml")
    assert list(catalog.mcp) == ["time", "files", "tickets"]
    assert catalog.agents[AgentId("support")].has_mcp_tools


def test_the_access_tokens_of_the_guide_can_be_loaded(tmp_path: Path) -> None:
    written = block_after(page("docs/how-to/mcp.md"), "access tokens")
    (tmp_path / "agents.toml").write_text(
        f'[models.gpt]\nprovider = "scripted"\n[agents.support]\nmodel = "gpt"\n{written}'
    )
    oauth = load_catalog(tmp_path / "agents.toml").mcp["tickets"].oauth
    assert oauth is not None
    assert (oauth.grant, oauth.scopes) == (Grant.CLIENT_CREDENTIALS, ("tickets:read",))


def test_the_search_of_the_guide_has_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "order_tools.py").write_text(
        "from holdfast import tool\n\n\n@tool\ndef find_order() -> str:\n    return 'paid'\n"
    )
    file = tmp_path / "agents.toml"
    file.write_text(
        '[models.gpt]\nprovider = "scripted"\n[tools]\nmodules = ["order_tools"]\n'
        '[mcp.github]\ncommand = "github"\n[mcp.slack]\ncommand = "slack"\n'
        + block_after(page("docs/how-to/many-tools.md"), "the search of an agent")
    )
    [support] = load_catalog(file).agents.values()
    assert replace(support.tool_search, always=()) == ToolSearchPolicy()
    assert support.tool_search.always == ("find_order",)


def test_the_skill_of_the_guide_can_be_loaded(tmp_path: Path) -> None:
    guide = page("docs/how-to/skills.md")
    (tmp_path / "shop.py").write_text(
        "from holdfast import tool\n\n\n@tool\ndef find_order() -> str:\n    return 'paid'\n"
        "\n\n@tool\ndef refund() -> str:\n    return 'done'\n"
    )
    write_skill(tmp_path, block_after(guide, "the file of a skill"), name="weekly-report")
    (tmp_path / "agents.toml").write_text(
        '[models.gpt]\nprovider = "scripted"\n[tools]\nmodules = ["shop"]\n'
        + block_after(guide, "an agent with a skill")
    )
    [support] = load_catalog(tmp_path / "agents.toml").agents.values()
    [skill] = support.skills
    assert skill.allowed_tools == ("find_order",)
    assert support.script_timeout == AgentSpec(id=AgentId("")).script_timeout


def test_the_agent_of_the_guide_about_memory_can_be_loaded(tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    file.write_text(
        '[models.gpt]\nprovider = "scripted"\n'
        + block_after(page("docs/how-to/memory.md"), "an agent with memory")
    )
    catalog = load_catalog(file)
    [support] = catalog.agents.values()
    made = catalog.plugins["memory"].plugin_for(support, support.plugins["memory"])
    assert made.memory == MemoryPolicy()
    assert made.hooks


def test_the_plugin_of_the_guide_works(tmp_path: Path) -> None:
    code = block_after(page("docs/how-to/plugins.md"), "a plugin of one's own")
    (tmp_path / "shop_plugins.py").write_text(code)
    (tmp_path / "agents.toml").write_text(
        """
        [models.m]
        provider = "scripted"
        [tools]
        modules = ["shop_plugins"]
        [agents.support]
        model = "m"
        [agents.support.plugins.refund_limit]
        most = 2
        """
    )
    catalog = load_catalog(tmp_path / "agents.toml")
    [spec] = catalog.agents.values()
    made = catalog.plugins["refund_limit"].plugin_for(spec, spec.plugins["refund_limit"])
    assert set(made.hooks) == {Phase.AFTER_TOOL_EXECUTE, Phase.STEP_START}
