"""Which tools a model is offered: restrictions add up, hiding wins, order is by name."""

from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.inference.shown_tools import offered_tools
from app.runtime.plugins import HideTools, OnlyTools, Request

TOOLS = [ToolDescriptor(name=name, description="", parameters={}) for name in "cab"]


def names(*asked: Request) -> list[str]:
    return [tool.name for tool in offered_tools(TOOLS, asked)]


def only(*names: str) -> OnlyTools:
    return OnlyTools(frozenset(names))


def hide(*names: str) -> HideTools:
    return HideTools(frozenset(names))


def test_all_tools_are_offered_sorted_by_name() -> None:
    assert names() == ["a", "b", "c"]


def test_restrictions_add_up() -> None:
    assert names(only("a"), only("c")) == ["a", "c"]


def test_a_restriction_to_nothing_offers_nothing() -> None:
    assert names(only()) == []


def test_a_hidden_tool_is_never_offered() -> None:
    assert names(only("a", "b"), hide("a")) == ["b"]
    assert names(hide("a"), hide("b")) == ["c"]


def test_names_of_unknown_tools_are_ignored() -> None:
    assert names(only("a", "x"), hide("y")) == ["a"]
