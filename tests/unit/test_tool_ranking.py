"""How tools are found by words: names count most, plurals and beginnings fit, equal ones are sorted by name."""

from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.tool_search.ranking import ranked


def a_tool(name: str, description: str = "", *parameters: str) -> ToolDescriptor:
    properties = {each: {"type": "string"} for each in parameters}
    return ToolDescriptor(
        name=name, description=description, parameters={"type": "object", "properties": properties}
    )


def found(query: str, *tools: ToolDescriptor) -> list[str]:
    return [tool.name for tool in ranked(query, tools)]


CREATE = a_tool("github__create_issue", "Open a ticket in a repository.", "title", "body")
LIST = a_tool("github__list_issues", "List what is open in a repository.", "repository")
SEND = a_tool("slack__send_message", "Post a text to a channel. An issue may be linked.", "channel")
INVITE = a_tool("calendar__inviteGuests", "Ask people to an event.", "guests")


def test_a_word_of_a_name_counts_more_than_one_of_a_description() -> None:
    assert found("issue", CREATE, LIST, SEND)[-1] == SEND.name


def test_more_fitting_words_come_first() -> None:
    assert found("create an issue", CREATE, LIST, SEND)[0] == CREATE.name


def test_the_name_of_a_tool_finds_it_first() -> None:
    other = a_tool("send_message_slack_slack_send", "slack send message")
    assert found("please use `slack__send_message`", other, SEND)[0] == SEND.name


def test_plurals_humps_and_parameters_fit() -> None:
    assert found("guest", CREATE, INVITE) == [INVITE.name]
    assert found("Invite", CREATE, INVITE) == [INVITE.name]
    assert found("titles", CREATE, LIST) == [CREATE.name]


def test_the_beginning_of_a_word_fits_if_no_tool_has_the_word() -> None:
    assert found("calend", CREATE, INVITE) == [INVITE.name]
    assert found("ca", CREATE, INVITE) == []


def test_equally_good_tools_are_sorted_by_name() -> None:
    tools = [a_tool(f"pay_{letter}") for letter in "cab"]
    assert found("pay", *tools) == ["pay_a", "pay_b", "pay_c"]


def test_nothing_fits_no_words_and_no_tools() -> None:
    assert found("weather", CREATE, LIST) == []
    assert found("?!", CREATE) == []
    assert found("issue") == []


def test_a_tool_may_have_any_schema_and_any_text() -> None:
    odd = ToolDescriptor(name="naïve", description="żółw " * 10_000, parameters={"properties": []})
    assert [tool.name for tool in ranked("żółw", [odd])] == ["naïve"]
