"""The plugin `memory` in an agents file, and agents with memory in tests of users."""

from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest

from app.agents.catalog import load_catalog
from app.builtin_plugins.memory import shown_text
from app.domain.errors import ConfigurationError
from app.domain.json_values import Json
from app.domain.memories.memories import MemoryEntry, MemoryOwner, MemoryScope
from holdfast.testing import call, run_agent, say
from tests.support.documents import block_after, page

pytestmark = pytest.mark.anyio

AGENTS = """
[models.m]
provider = "scripted"

[tools]
modules = ["shop"]

[agents.helper]
model = "m"
tools = [TOOLS]
approval = ["memory_forget"]

[agents.helper.plugins.memory]
TABLE
"""
MODULE = '''
from holdfast import ToolContext, tool

@tool(effect="idempotent")
async def note_order(number: str, ctx: ToolContext) -> str:
    """Remember an order."""
    before = await ctx.memory.get("orders", default=[])
    await ctx.memory.set("orders", [number, *before])
    found = await ctx.memory.search("likes")
    newest = await ctx.memory.newest(limit=1)
    was_there = await ctx.memory.delete("draft")
    return f"{[one.key for one in found]} {newest[0].key} {was_there}"

@tool
def memory_save(key: str) -> str:
    """Save."""
    return key
'''


def agents_file(folder: Path, table: str = "", tools: str = '"note_order"') -> Path:
    (folder / "shop.py").write_text(dedent(MODULE))
    file = folder / "agents.toml"
    file.write_text(AGENTS.replace("TABLE", table).replace("TOOLS", tools))
    return file


@pytest.mark.parametrize(
    "table, tools, sentence",
    [
        ('scope = "me"', "", "plugins.memory.scope"),
        ("show_count = 0", "", "plugins.memory.show_count"),
        ('user_key = "id"', "", 'means nothing without scope = "user"'),
        ("colour = 1", "", "plugins.memory.colour"),
        ("", '"memory_save"', "the plugin has one of this name; rename yours"),
    ],
)
def test_a_wrong_table_is_refused_with_its_key(
    tmp_path: Path, table: str, tools: str, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match="agents.helper") as refused:
        load_catalog(agents_file(tmp_path, table, tools))
    assert sentence in str(refused.value)


def test_a_tool_of_the_plugin_needs_the_plugin_to_be_approved(tmp_path: Path) -> None:
    file = agents_file(tmp_path)
    file.write_text(file.read_text().replace("[agents.helper.plugins.memory]", ""))
    with pytest.raises(ConfigurationError, match="the agent has no tool 'memory_forget'"):
        load_catalog(file)


async def test_tools_use_the_memory_in_tests(tmp_path: Path) -> None:
    script = [call("note_order", number="7"), say("Noted.")]
    known: dict[str, Json] = {"orders": ["5"], "taste": "She likes tea.", "draft": 1}
    async with run_agent(agents_file(tmp_path), script=script, memories=known) as run:
        assert run.calls[0].result == "['taste'] orders True"
        assert run.memories == {"orders": ["7", "5"], "taste": "She likes tea."}
    assert known["draft"] == 1


async def test_a_person_approves_a_deletion(tmp_path: Path) -> None:
    script = [call("memory_forget", key="taste"), say("Gone.")]
    async with run_agent(
        agents_file(tmp_path), script=script, memories={"taste": "She likes tea."}
    ) as run:
        assert run.waiting_for("memory_forget")
        assert run.memories == {"taste": "She likes tea."}
        await run.approve()
        assert run.memories == {}


async def test_the_next_run_is_shown_what_the_one_before_has_saved(tmp_path: Path) -> None:
    script = [call("memory_save", key="taste", text="Tea."), say("Noted."), say("Tea?")]
    file = agents_file(tmp_path, 'show = "newest"', tools="")
    async with run_agent(file, script=script[:2]) as run:
        await run.send("And now?", script=script[2:])
        shown = ['taste: "Tea."' in str(request.messages) for request in run.requests]
    assert shown == [False, False, True]


async def test_the_example_of_the_guide_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = page("docs/how-to/memory.md")
    (tmp_path / "agents.toml").write_text(
        '[models.gpt]\nprovider = "scripted"\n' + block_after(guide, "an agent with memory")
    )
    names: dict[str, object] = {}
    exec(block_after(guide, "a test of memory"), names)
    monkeypatch.chdir(tmp_path)
    await names["test_the_agent_saves_the_colour"]()  # type: ignore[operator]


def entry(key: str, value: Json) -> MemoryEntry:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return MemoryEntry(
        id=key,
        owner=MemoryOwner(MemoryScope.SUBJECT, "ann"),
        key=key,
        value=value,
        size=1,
        agent_id=None,
        run_id=None,
        saved_by="ann",
        created_at=now,
        updated_at=now,
    )


def test_shown_memories_are_lines_in_a_fixed_order_within_their_bytes() -> None:
    entries = [entry("b", "two\nlines"), entry("a", {"x": 1}), entry("c", "x" * 300)]
    text = shown_text(entries, 400)
    assert text.split("\n")[1:] == ['a: {"x":1}', 'b: "two\\nlines"']
    assert shown_text([*reversed(entries[:2])], 400) == text
    assert len(text.encode()) <= 400
    assert shown_text([], 400) == ""
    assert shown_text([entry("c", "x" * 300)], 100) == ""
