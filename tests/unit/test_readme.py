"""What the README says of settings and promises is what there is."""

import json
import re
from pathlib import Path

from pydantic import BaseModel

from app.agents.catalog import load_catalog
from app.agents.file_schema import AgentEntry, OptionsEntry, RetryEntry
from app.api.schemas.common import MAX_DEPTH, MAX_FIELDS
from app.api.schemas.inputs import InputsIn
from app.api.schemas.messages import NewMessage
from app.bootstrap.agents import known_backends
from app.cli.environment import as_markdown
from app.domain.ids import AgentId
from app.http.limits.body_size import MAX_PATH_LENGTH, MAX_QUERY_LENGTH
from app.http.limits.connections import MAX_HEAD_BYTES
from app.http.limits.json_bounds import MAX_NUMBER_LENGTH, MAX_VALUES
from app.runtime.plugins import Phase
from app.storage.page_rows import MAX_PAGE_BYTES
from app.tools.schemas.subset import KEYWORDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_table_of_settings_is_that_of_the_code() -> None:
    written = README.partition("<!-- `holdfast settings --markdown` -->")[2]
    assert written.partition("<!-- end of settings -->")[0].strip() == as_markdown()


def test_every_promise_names_tests_that_are_there() -> None:
    rows = re.findall(r"^\| (I\d+) \|.*\| (.*) \|$", README, re.M)
    assert [number for number, _ in rows] == [f"I{count}" for count in range(1, 13)]
    sources = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    for number, breaks in rows:
        names = re.findall(r"`(test_\w+)`", breaks)
        assert names, number
        for name in names:
            assert re.search(rf"def {name}\b", sources), f"{number}: {name}"


def test_the_bounds_of_a_request_are_those_of_the_code() -> None:
    written = README.partition("### Bounds of a request")[2].partition("## Configuration")[0]
    rows = dict(re.findall(r"^\| (.*?) \| ([\d,]+)\b.*? \| \d+ `\w+` \|$", written, re.M))
    assert {what: int(bound.replace(",", "")) for what, bound in rows.items()} == {
        "Values in a JSON body, on all levels together": MAX_VALUES,
        "Characters of a number in a JSON body": MAX_NUMBER_LENGTH,
        "Levels of free JSON, such as metadata or a result": MAX_DEPTH,
        "Fields of an object that isn't free JSON": MAX_FIELDS,
        "Messages of a request": _most(InputsIn, "messages"),
        "Parts of a message": _most(NewMessage, "content"),
        "The query of an address": MAX_QUERY_LENGTH,
        "The path of an address": MAX_PATH_LENGTH,
        "Address and headers together": MAX_HEAD_BYTES,
    }
    assert f"{MAX_PAGE_BYTES:,} bytes" in written


def _most(request: type[BaseModel], field: str) -> int:
    """How long a list may be, however deep the schema of the field says so."""
    [bound] = re.findall(
        r'"maxItems": (\d+)', json.dumps(request.model_json_schema()["properties"][field])
    )
    return int(bound)


def test_every_file_to_read_first_is_there() -> None:
    for name in re.findall(r"`(app/[\w/]+\.py)`", README):
        assert (ROOT / name).exists(), name


def test_the_table_of_an_agents_keys_is_whole() -> None:
    written = README.partition("<!-- keys of an agent -->")[2].partition("<!-- end of keys -->")[0]
    rows = re.findall(r"^\| `(\w+)` \|", written, re.M)
    assert sorted(rows) == sorted(AgentEntry.model_fields)
    for table, entry in (("options", OptionsEntry), ("retry", RetryEntry)):
        [row] = [line for line in written.splitlines() if line.startswith(f"| `{table}` |")]
        assert set(entry.model_fields) <= set(re.findall(r"`(\w+)`", row))


def test_the_table_of_json_schema_has_every_keyword_that_clients_may_use() -> None:
    written = README.partition("<!-- the subset of JSON Schema -->")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*`) \|", written, re.M)
    assert sorted(word for row in rows for word in re.findall(r"`([$\w]+)`", row)) == sorted(
        KEYWORDS
    )


def _snippet(begins: str, ends: str) -> str:
    return README.partition(f"<!-- {begins} -->\n```toml\n")[2].partition(f"```\n<!-- {ends} -->")[
        0
    ]


def test_the_agents_files_that_are_shown_are_right(tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    model = '[models.gpt]\nprovider = "scripted"\n'
    file.write_text(model + _snippet("agents that work for agents", "end of them"))
    team = load_catalog(file).agents
    assert team[AgentId("editor")].delegates == ("researcher", "lawyer")
    file.write_text(_snippet("agents elsewhere", "end of agents elsewhere"))
    far = load_catalog(file, endpoints=known_backends()).agents
    backends = [agent.endpoint.backend for agent in far.values() if agent.endpoint is not None]
    assert backends == ["a2a", "holdfast"]


def test_the_plugin_of_ones_own_works(tmp_path: Path) -> None:
    code = README.partition("<!-- a plugin of one's own -->")[2].partition("<!-- end of")[0]
    (tmp_path / "shop_plugins.py").write_text(code.partition("```python\n")[2].partition("```")[0])
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
    made = catalog.plugins["refund_limit"].made(spec, spec.plugins["refund_limit"])
    assert set(made.hooks) == {Phase.AFTER_TOOL_EXECUTE, Phase.STEP_START}
