"""The tools of an MCP server: names, effects, pins and what is left out."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.tools.tool_calls import Effect
from app.tools.mcp.listing import Listing, StoredTool, listing_of, offered
from app.tools.mcp.names import model_name, visible
from app.tools.mcp.server_spec import Effects, McpServerSpec, Pin

NOW = datetime(2026, 11, 19, tzinfo=UTC)


def described(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "It.", "inputSchema": {"type": "object"}, **more}


def listing(*tools: dict[str, Any], **settings: Any) -> Listing:
    return listing_of(McpServerSpec(name="shop", **settings), tools)


def stored(tool: dict[str, Any], **more: Any) -> StoredTool:
    [listed] = listing(tool).tools.values()
    return StoredTool(
        name=listed.name,
        digest=listed.digest,
        described=tool,
        first_seen=NOW,
        last_seen=NOW,
        **more,
    )


def test_a_usable_name_follows_the_servers_name() -> None:
    assert model_name("github", "create_issue") == "github__create_issue"


@pytest.mark.parametrize("name", ["x.y", "x y", "ü", "x" * 100])
def test_other_names_are_mended_and_stay_different(name: str) -> None:
    mended = model_name("shop", name)
    assert len(mended) <= 64
    assert mended.replace("_", "").replace("-", "").isalnum()
    assert mended.isascii()
    assert mended != model_name("shop", name + ".")


def test_text_keeps_its_lines_and_loses_what_people_do_not_see() -> None:
    assert visible("one\n\ttwo\u200b\u202e\x00") == "one\n\ttwo"


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        ({"readOnlyHint": True}, Effect.READ),
        ({"readOnlyHint": False, "idempotentHint": True}, Effect.IDEMPOTENT),
        ({"readOnlyHint": "yes"}, Effect.UNSAFE),
        ({}, Effect.UNSAFE),
    ],
)
def test_the_effect_follows_from_hints_only_if_they_are_believed(
    hints: dict[str, Any], effect: Effect
) -> None:
    tool = described("work", annotations=hints)
    assert listing(tool).tools["work"].effect is effect
    unbelieved = listing(tool, effects=Effects.UNSAFE)
    assert unbelieved.tools["work"].effect is Effect.UNSAFE


def test_only_tools_of_the_table_are_listed() -> None:
    found = listing(described("get_a"), described("drop"), tools=("get_*",))
    assert list(found.tools) == ["get_a"]
    assert found.left_out == {}


def test_a_tool_that_only_runs_as_a_task_is_left_out() -> None:
    found = listing(described("work", execution={"taskSupport": "required"}))
    assert "task" in found.left_out["work"]


def test_a_digest_changes_with_each_part_of_the_description() -> None:
    plain = listing(described("work")).tools["work"].digest
    changes: list[dict[str, Any]] = [
        {"description": "That."},
        {"outputSchema": {}},
        {"annotations": {"title": "x"}},
    ]
    for change in changes:
        assert listing(described("work", **change)).tools["work"].digest != plain


def test_a_required_pin_offers_only_what_a_person_has_accepted() -> None:
    spec = McpServerSpec(name="shop", pin=Pin.REQUIRE)
    now, before = described("work"), described("work", description="Before.")
    digest, old = stored(now).digest, stored(before).digest
    cases = {
        "first": stored(now, accepted_digest=digest),
        "changed": stored(now, accepted_digest=old, accepted_by="ann"),
        "accepted": stored(now, accepted_digest=digest, accepted_by="ann"),
    }
    found = {
        case: list(offered(spec, listing(now), {"work": tool})) for case, tool in cases.items()
    }
    assert found == {"first": [], "changed": [], "accepted": ["work"]}
    assert [tool.drift for tool in cases.values()] == [None, "changed", None]
    assert stored(now).drift == "new"
    assert list(offered(spec, listing(now), {})) == []
