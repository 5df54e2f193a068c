"""Agents with many tools: the search tool, what it reveals, and the order of the tools in requests."""

from pathlib import Path
from textwrap import dedent

import pytest

from app.domain.agents.tool_search import DEFAULT_THRESHOLD, ToolSearchMode
from app.domain.ids import AgentId
from app.runtime.tool_search.revealed_tools import MAX_REVEALED, newly_revealed
from app.runtime.tool_search.search_tool import MAX_QUERY_CHARACTERS, SearchTool
from holdfast.testing import AgentRun, call, run_agent, say
from tests.support.agents_files import MODELS, load, problems

pytestmark = pytest.mark.anyio

MANY = DEFAULT_THRESHOLD + 1
MODULE = """
from holdfast import tool

def made(number):
    def act(text: str = "") -> str:
        return f"done {number}"
    act.__doc__ = f"Do the work of number{number}."
    return tool(name=f"work_{number:03}")(act)

globals().update({f"work_{number}": made(number) for number in range(MANY)})

@tool(effect="read")
def weather(city: str) -> str:
    "Tell the weather of a city."
    return f"sun in {city}"

@tool(effect="read")
def forecast(city: str) -> str:
    "Predict the weather of a city."
    return f"rain in {city}"
"""
AGENTS = """
[models.m]
provider = "scripted"

[tools]
modules = ["many_tools"]

[agents.helper]
model = "m"
tools = [TOOLS, "forecast", "weather"]
MORE
"""
SEARCH = call("search_tools", query="weather")


def agents_file(folder: Path, more: str = "", many: int = MANY) -> Path:
    (folder / "many_tools.py").write_text(dedent(MODULE).replace("MANY", str(many)))
    names = ", ".join(f'"work_{number:03}"' for number in range(many))
    file = folder / "agents.toml"
    file.write_text(AGENTS.replace("TOOLS", names).replace("MORE", more))
    return file


def shown(run: AgentRun) -> list[list[str]]:
    return [[tool.name for tool in request.tools] for request in run.requests]


def outcomes(run: AgentRun) -> list[tuple[str, str]]:
    done = [event for event in run.events if event["event_type"] == "tool_call_done"]
    return [(event["result"]["outcome"], event["result"]["text"]) for event in done]


# --- when it applies ------------------------------------------------------------------------------


async def test_an_agent_with_few_tools_shows_them_all(tmp_path: Path) -> None:
    file = agents_file(tmp_path, many=DEFAULT_THRESHOLD - 2)
    async with run_agent(file, script=[say("Hello.")]) as run:
        assert len(shown(run)[0]) == DEFAULT_THRESHOLD


async def test_an_agent_with_many_tools_shows_the_search_tool(tmp_path: Path) -> None:
    async with run_agent(agents_file(tmp_path), script=[say("Hello.")]) as run:
        assert shown(run) == [["search_tools"]]
        [search] = run.requests[0].tools
        assert f"there are {MANY + 2} others" in search.description


@pytest.mark.parametrize(
    ("table", "has_search"),
    [('mode = "off"', False), ('mode = "on"\nthreshold = 500', True), ("threshold = 500", False)],
)
async def test_the_agents_file_decides(tmp_path: Path, table: str, has_search: bool) -> None:
    file = agents_file(tmp_path, f"[agents.helper.tool_search]\n{table}")
    async with run_agent(file, script=[say("Hello.")]) as run:
        assert ("search_tools" in shown(run)[0]) is has_search
        assert ("weather" in shown(run)[0]) is not has_search


async def test_some_tools_are_always_shown(tmp_path: Path) -> None:
    more = """
        handoffs = ["other"]
        delegates = ["other"]
        tool_search = { always = ["work_00?", "forecast"] }
        [agents.other]
        model = "m"
        """
    async with run_agent(
        agents_file(tmp_path, more), agent="helper", script=[say("Hello.")]
    ) as run:
        first = [f"work_{number:03}" for number in range(10)]
        kept = ["agent_run_other", "forecast", "search_tools", "transfer_to_other", *first]
        assert shown(run) == [kept]


async def test_the_search_tool_gets_another_name_beside_a_tool_of_its_name(tmp_path: Path) -> None:
    file = agents_file(tmp_path)
    module = tmp_path / "many_tools.py"
    module.write_text(module.read_text().replace("def forecast", "def search_tools"))
    file.write_text(file.read_text().replace('"forecast"', '"search_tools"'))
    async with run_agent(file, script=[call("search_tools_", query="predict"), say("Hm.")]) as run:
        assert shown(run) == [["search_tools_"], ["search_tools_", "search_tools"]]


# --- searching ------------------------------------------------------------------------------------


async def test_found_tools_are_appended_in_the_order_in_which_they_were_found(
    tmp_path: Path,
) -> None:
    script = [
        call("search_tools", query="work_007", limit=1),
        SEARCH,
        call("weather", city="Oslo"),
        call("search_tools", query="number7 weather"),
        say("Sun."),
    ]
    async with run_agent(agents_file(tmp_path), script=script) as run:
        before: list[str] = []
        for tools in shown(run):
            assert tools[: len(before)] == before, "each request begins with the one before"
            before = tools
        assert shown(run)[-1] == ["search_tools", "work_007", "weather", "forecast"]
        assert [made.tool for made in run.calls] == [
            "search_tools",
            "search_tools",
            "weather",
            "search_tools",
        ]
        assert outcomes(run)[2] == ("succeeded", "sun in Oslo")


async def test_an_answer_has_names_and_descriptions_and_events_have_the_names(
    tmp_path: Path,
) -> None:
    async with run_agent(agents_file(tmp_path), script=[SEARCH, say("Well.")]) as run:
        [(outcome, text)] = outcomes(run)
        assert outcome == "succeeded"
        assert "- weather: Tell the weather of a city." in text
        [done] = [each for each in run.events if each["event_type"] == "tool_call_done"]
        assert done["result"]["data"] == {"tools": ["weather", "forecast"]}


async def test_a_search_without_a_result_says_what_there_is(tmp_path: Path) -> None:
    script = [call("search_tools", query="submarine"), say("No.")]
    async with run_agent(agents_file(tmp_path), script=script) as run:
        [(outcome, text)] = outcomes(run)
        assert outcome == "succeeded"
        assert text.startswith("No tool fits.")
        assert f"There are: {MANY + 2}." in text


async def test_a_search_needs_no_approval_under_rules(tmp_path: Path) -> None:
    more = '[agents.helper.plugins.permission]\ndefault = "ask"'
    async with run_agent(
        agents_file(tmp_path, more), script=[SEARCH, call("weather", city="Rome"), say("Sun.")]
    ) as run:
        assert run.waiting_for("weather")
        await run.approve()
        assert shown(run)[-1] == ["search_tools", "weather", "forecast"], "as before the suspension"
        assert run.response == "Sun."


async def test_a_tool_that_rules_deny_is_not_found(tmp_path: Path) -> None:
    more = """
        [agents.helper.plugins.permission]
        default = "allow"
        rules = [{ tool = "weather", behavior = "deny" }]
        """
    script = [SEARCH, call("weather", city="Rome"), say("No.")]
    async with run_agent(agents_file(tmp_path, more), script=script) as run:
        assert shown(run)[-1] == ["search_tools", "forecast"]
        assert "was not shown to you" in outcomes(run)[1][1]
        assert "can't be shown" in outcomes(run)[1][1]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"query": ""},
        {"query": "  "},
        {"query": 7},
        {"query": "x" * (MAX_QUERY_CHARACTERS + 1)},
        {"query": "x", "limit": 0},
        {"query": "x", "limit": 21},
        {"query": "x", "limit": True},
        {"query": "x", "more": 1},
        None,
        [],
    ],
)
def test_wrong_arguments_of_a_search_are_named(arguments: object) -> None:
    assert SearchTool("search_tools", []).invalid_arguments(arguments)  # type: ignore[arg-type]


# --- tools that were not shown --------------------------------------------------------------------


async def test_a_call_of_an_unshown_tool_is_not_run_and_shows_the_tool(tmp_path: Path) -> None:
    script = [call("weather", city="Bonn"), call("weather", city="Bonn"), say("Sun.")]
    async with run_agent(agents_file(tmp_path), script=script) as run:
        refused, succeeded = outcomes(run)
        assert refused[0] == "failed"
        assert "was not shown to you, so this call was not run" in refused[1]
        assert "call it again" in refused[1]
        assert succeeded == ("succeeded", "sun in Bonn")
        assert shown(run) == [["search_tools"], *[["search_tools", "weather"]] * 2]


async def test_an_unknown_tool_is_still_unknown(tmp_path: Path) -> None:
    async with run_agent(agents_file(tmp_path), script=[call("nothing"), say("Oh.")]) as run:
        assert outcomes(run) == [("failed", "tool 'nothing' not found")]


def test_a_run_reveals_a_limited_number_of_tools_each_once() -> None:
    before = [f"tool{number}" for number in range(MAX_REVEALED - 1)]
    assert newly_revealed(before, ["tool1", "a", "a", "b"]) == ["a"]
    assert newly_revealed([*before, "a"], ["b"]) == []


async def test_a_search_says_which_tools_are_too_many(tmp_path: Path) -> None:
    script = [
        [call(f"work_{number:03}") for number in range(MAX_REVEALED - 1)],
        call("search_tools", query="number200 number201", limit=2),
        say("Enough."),
    ]
    async with run_agent(agents_file(tmp_path, many=MAX_REVEALED + 100), script=script) as run:
        assert len(shown(run)[-1]) == 1 + MAX_REVEALED
        text = outcomes(run)[-1][1]
        assert "Too many tools are shown already. These are not shown: work_201." in text


# --- with structured output -----------------------------------------------------------------------


async def test_the_tool_of_the_final_answer_comes_first(tmp_path: Path) -> None:
    more = """
        [agents.helper.output]
        mode = "tool"
        [agents.helper.output.schema]
        type = "object"
        """
    async with run_agent(agents_file(tmp_path, more), script=[SEARCH, call("final_answer")]) as run:
        assert shown(run) == [
            ["final_answer", "search_tools"],
            ["final_answer", "search_tools", "weather", "forecast"],
        ]


# --- the agents file ------------------------------------------------------------------------------

AGENT = '[agents.a]\nmodel = "fast"\ntools = ["look"]\n[agents.a.tool_search]\n'
TOOLS = """
    from holdfast import tool

    @tool(effect="read")
    def look() -> str:
        return "seen"
    """


def test_the_policy_is_read_with_its_defaults(tmp_path: Path) -> None:
    text = MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + 'always = ["lo*"]'
    policy = load(tmp_path, text, my_tools=TOOLS).agents[AgentId("a")].tool_search
    assert (policy.mode, policy.threshold) == (ToolSearchMode.AUTO, DEFAULT_THRESHOLD)
    assert policy.always == ("lo*",)
    assert not policy.applies_to(DEFAULT_THRESHOLD)
    assert policy.applies_to(DEFAULT_THRESHOLD + 1)


@pytest.mark.parametrize(
    ("line", "place", "sentence"),
    [
        ('always = ["lok"]', "always[0]", "the agent has no tool 'lok', did you mean 'look'?"),
        ('always = ["[l"]', "always[0]", "isn't closed"),
        ('mode = "maybe"', "mode", "'auto', 'on' or 'off'"),
        ("threshold = 0", "threshold", "greater than or equal to 1"),
        ("treshold = 5", "treshold", "did you mean 'threshold'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, line: str, place: str, sentence: str) -> None:
    text = MODELS + '[tools]\nmodules = ["my_tools"]\n' + AGENT + line
    [problem] = problems(tmp_path, text, my_tools=TOOLS)
    assert problem.startswith(f"agents.a.tool_search.{place}: ")
    assert sentence in problem
