"""Structured output: how the model is asked, what counts as its answer, and how it is corrected."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from app.domain.runs.output_specs import OutputSpec, problem_of_output
from app.runtime.inference.structured_output import answered
from app.tools.requested_answers import SchemaOutput
from holdfast.testing import call, run_agent, say
from tests.support.agents_files import problems

pytestmark = pytest.mark.anyio

TOOLS = """
from holdfast import tool

@tool(effect="read")
def look(place: str) -> str:
    return f"a key in the {place}"
"""
AGENTS = """
[models.m]
provider = "scripted"
script = "plain"

[tools]
modules = ["house_tools"]

[agents.finder]
model = "m"
tools = ["look"]
MORE
[agents.finder.output]
mode = "MODE"
[agents.finder.output.schema]
type = "object"
required = ["count"]
[agents.finder.output.schema.properties.count]
type = "integer"
minimum = 1
"""
SCHEMA = {
    "type": "object",
    "required": ["count"],
    "properties": {"count": {"type": "integer", "minimum": 1}},
}


def agents_file(folder: Path, mode: str = "auto", more: str = "") -> Path:
    (folder / "house_tools.py").write_text(dedent(TOOLS))
    file = folder / "agents.toml"
    file.write_text(AGENTS.replace("MODE", mode).replace("MORE", more))
    return file


@pytest.mark.parametrize("mode", ["auto", "tool"])
async def test_a_call_with_the_answer_ends_the_run(tmp_path: Path, mode: str) -> None:
    script = [call("look", place="attic"), call("final_answer", count=3)]
    async with run_agent(agents_file(tmp_path, mode), agent="finder", script=script) as run:
        assert run.structured_output == {"count": 3}
        assert run.response == '{"count":3}'
        assert [made.tool for made in run.calls] == ["look"], "the answer is no call"
        finish = run.events[-1]
        assert finish["result"]["structured_output"] == {"count": 3}
        first = run.requests[0]
        assert [tool.name for tool in first.tools] == ["final_answer", "look"]
        assert first.tools[0].parameters == SCHEMA


@pytest.mark.parametrize("mode", ["native", "prompted"])
async def test_a_text_with_the_answer_ends_the_run(tmp_path: Path, mode: str) -> None:
    script = [say('{"count": 2}')]
    async with run_agent(agents_file(tmp_path, mode), agent="finder", script=script) as run:
        assert run.structured_output == {"count": 2}
        [request] = run.requests
        assert [tool.name for tool in request.tools] == ["look"]
        assert (request.output is not None) is (mode == "native")
        assert ('"minimum":1' in request.system_prompt) is (mode == "prompted")


async def test_the_model_corrects_an_answer_that_does_not_fit(tmp_path: Path) -> None:
    script = [call("final_answer", count=0), call("final_answer", count=1)]
    async with run_agent(agents_file(tmp_path), agent="finder", script=script) as run:
        assert run.structured_output == {"count": 1}
        correction = run.requests[1]
        assert [tool.name for tool in correction.tools] == ["final_answer"], "no other tools"
        assert "count: " in correction.messages[-1].text


async def test_a_correction_in_native_mode_may_call_no_tools(tmp_path: Path) -> None:
    script = [say("three"), say('{"count": 3}')]
    async with run_agent(agents_file(tmp_path, "native"), agent="finder", script=script) as run:
        first, correction = run.requests
        assert (first.tool_choice, correction.tool_choice) == (None, "none")
        assert first.tools == correction.tools, "the request's beginning stays the same"
        assert run.structured_output == {"count": 3}


async def test_a_run_without_retries_left_fails(tmp_path: Path) -> None:
    script = [say("one"), say("two"), say("three")]
    async with run_agent(agents_file(tmp_path), agent="finder", script=script) as run:
        assert run.outcome == "failed"
        termination = run.termination
        assert termination is not None
        assert termination["code"] == "output_invalid"
        assert "three" in termination["detail"]
        assert run.structured_output is None


async def test_the_answer_comes_after_an_approval(tmp_path: Path) -> None:
    script = [call("look", place="attic"), call("final_answer", count=1)]
    file = agents_file(tmp_path, more='approval = ["look"]')
    async with run_agent(file, agent="finder", script=script) as run:
        assert run.waiting_for("look")
        await run.approve()
        assert run.structured_output == {"count": 1}


OUTPUT = SchemaOutput(OutputSpec(schema=SCHEMA))


@pytest.mark.parametrize(
    "text",
    [
        '{"count": 4}',
        ' \n{"count":4}\n',
        '```json\n{"count": 4}\n```',
        'Here it is:\n{"count": 4}',
        'First {"count": 0}, no.\n{"count": 4}',
    ],
)
def test_words_around_an_answer_do_not_hurt(text: str) -> None:
    assert answered(OUTPUT, text) == ({"count": 4}, "")


@pytest.mark.parametrize(
    "text", ["", "four", "[4]", '{"count": 4', '{"count": NaN}', '{"count": 4} is it', "{" * 5000]
)
def test_other_texts_are_no_answer(text: str) -> None:
    assert answered(OUTPUT, text)[0] is None


def test_a_huge_answer_is_refused_before_it_is_read() -> None:
    assert answered(OUTPUT, '{"a": "' + "x" * 2_000_000 + '"}') == (None, "it is too large")


@pytest.mark.parametrize(
    ("schema", "name", "strict", "words"),
    [
        ({"type": "array"}, "a", False, "must describe an object"),
        ({}, "a", False, "must describe an object"),
        (SCHEMA, "no spaces", False, "name must have"),
        (SCHEMA, "a", True, "additionalProperties"),
        (
            {
                **SCHEMA,
                "additionalProperties": False,
                "properties": {"count": {"type": "object", "properties": {}}},
            },
            "a",
            True,
            "schema.properties.count",
        ),
    ],
)
def test_an_output_that_cannot_work_is_refused(
    schema: Any, name: str, strict: bool, words: str
) -> None:
    problem = problem_of_output(schema, name, strict=strict)
    assert problem is not None
    assert words in problem
    assert problem_of_output({**SCHEMA, "additionalProperties": False}, "a", strict=True) is None


def test_the_agents_file_names_what_is_wrong_with_an_output(tmp_path: Path) -> None:
    text = agents_file(tmp_path).read_text()
    module = {"house_tools": TOOLS}
    for wrong, words in [
        ('type = "integer"', 'type = "number of keys"'),
        ('mode = "auto"', 'mode = "magic"'),
        ('type = "object"', 'type = "array"'),
    ]:
        [problem] = problems(tmp_path, text.replace(wrong, words), **module)
        assert problem.startswith("agents.finder.output")


async def test_the_end_of_an_inference_has_its_reason(tmp_path: Path) -> None:
    script = [call("look", place="attic"), say('{"count": 1}')]
    async with run_agent(agents_file(tmp_path), agent="finder", script=script) as run:
        ends = [each for each in run.events if each["event_type"] == "inference_complete"]
        assert [each["finish_reason"] for each in ends] == ["tool_use", "end_turn"]
