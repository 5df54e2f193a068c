"""What a start asks of the model's answers: a format, instructions, and the choice of tools."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.errors import Invalid
from app.domain.ids import CallId
from app.domain.runs.output_specs import OutputMode, OutputSpec
from app.domain.runs.requested_answers import RequestedAnswer
from app.domain.runs.runs import Done
from app.llm.scripted.model import Call, in_order, turn
from app.runtime.ports.models import ModelRequest
from app.tools.functions.decorator import tool
from tests.support.replicas import an_agent, open_replica
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["count"],
    "properties": {"count": {"type": "integer", "minimum": 1}},
}


@tool(effect="read")
def look(place: str) -> str:
    return f"a key in the {place}"


@tool(effect="read")
def listen() -> str:
    return "steps"


LOOK = Call(tool="look", arguments={"place": "attic"}, id=CallId("c1"))


async def test_instructions_are_added_to_the_system_prompt(database_url: str) -> None:
    script = in_order(turn("Hi."), turn("Hi."))
    agent = an_agent(system_prompt="You help.")
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start(answer=RequestedAnswer(instructions="Be brief."))).finished()
        await (await replica.start()).finished()
    assert [request.system_prompt for request in script.requests] == [
        "You help.\n\nBe brief.",
        "You help.",
    ]


@pytest.mark.parametrize(
    ("choice", "in_requests"),
    [
        ("none", ["none", "none"]),
        ("required", ["required", None]),
        ("tool:look", ["tool:look", None]),
        (None, [None, None]),
    ],
)
async def test_a_forced_call_is_asked_for_once(
    database_url: str, choice: str | None, in_requests: Sequence[str | None]
) -> None:
    script = in_order(turn(LOOK), turn("Found."))
    async with open_replica(database_url, an_agent(look, listen), script) as replica:
        await (await replica.start(answer=RequestedAnswer(tool_choice=choice))).finished()
    assert [request.tool_choice for request in script.requests] == in_requests


async def test_a_run_has_only_the_tools_that_its_start_names(database_url: str) -> None:
    script = in_order(turn(LOOK), turn("I can't."))
    async with open_replica(database_url, an_agent(look, listen), script) as replica:
        run = await replica.start(answer=RequestedAnswer(tools=("listen",)))
        await run.finished()
        log = await run.log()
    assert [_names(request) for request in script.requests] == [["listen"], ["listen"]]
    assert "a key" not in str(log), "the tool isn't executed"


def _names(request: ModelRequest) -> list[str]:
    return [tool.name for tool in request.tools]


@pytest.mark.parametrize(
    "answer", [RequestedAnswer(tools=("look", "smell")), RequestedAnswer(tool_choice="tool:smell")]
)
async def test_a_tool_that_the_agent_has_not_is_refused(
    database_url: str, answer: RequestedAnswer
) -> None:
    async with open_replica(database_url, an_agent(look), in_order()) as replica:
        with pytest.raises(Invalid) as refused:
            await replica.start(answer=answer)
    assert refused.value.code == "tool_not_found"
    assert refused.value.facts["names"] == ["smell"]


async def test_the_format_outlives_a_suspension(database_url: str) -> None:
    output = OutputSpec(schema=SCHEMA, mode=OutputMode.TOOL)
    wrong, right = (
        Call(tool="final_answer", arguments={"count": count}, id=CallId(f"a{count}"))
        for count in (0, 1)
    )
    script = in_order(turn(LOOK), turn(wrong), turn(right))
    agent = an_agent(look, approval=["look"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start(answer=RequestedAnswer(output=output))
        await run.finished()
    async with open_replica(database_url, agent, script) as other:
        again = other.same(run)
        await again.decide("c1", "approve")
        emitted = await again.finished(2)
        state = (await again.now()).state
    assert emitted[-1]["result"] == {"response": '{"count":1}', "structured_output": {"count": 1}}
    assert isinstance(state, Done)
    assert state.structured_output == {"count": 1}


# --- over HTTP ------------------------------------------------------------------------------------


async def test_the_record_has_the_answer_as_data(client: Client) -> None:
    prompt = 'CALL final_answer {"count": 3}'
    started = await client.start("quick", prompt, output={"schema": SCHEMA})
    run = await client.ended(started["id"])
    assert run["structured_output"] == {"count": 3}
    plain = await client.ended((await client.start("quick", "hello"))["id"])
    assert plain["structured_output"] is None


@pytest.mark.parametrize(
    ("more", "mistake"),
    [
        ({"output": {"schema": {"type": "array"}}}, "must describe an object"),
        ({"output": {"schema": {**SCHEMA, "$ref": "https://x/y"}}}, "$ref"),
        ({"output": {"schema": SCHEMA, "strict": True}}, "additionalProperties"),
        ({"output": {"schema": SCHEMA, "mode": "magic"}}, "mode"),
        ({"output": {"schema": SCHEMA, "retries": 11}}, "retries"),
        ({"output": {"schema": SCHEMA, "name": "a b"}}, "name"),
        ({"output": {}}, "schema"),
        ({"output": {"schema": {"type": "object", "enum": list(range(9000))}}}, "5000 values"),
        ({"instructions": ""}, "instructions"),
        ({"instructions": "x" * 100_001}, "instructions"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": {"name": "teleport"}}, "tool_not_found"),
        ({"tools": ["teleport"]}, "tool_not_found"),
        ({"tools": "add"}, "tools"),
        ({"tools": ["add"], "on_active": "steer"}, "steer"),
    ],
)
async def test_what_cannot_be_asked_is_refused(
    client: Client, more: dict[str, Any], mistake: str
) -> None:
    answer = await client.http.post("/v1/runs", json=start_body("quick", "hello", **more))
    assert answer.status_code == 422
    assert mistake in answer.text


async def test_the_same_request_again_is_the_same_run(client: Client) -> None:
    run_id = "0199a0b0-0000-7000-8000-00000000abcd"
    body = start_body("quick", "hello", run_id=run_id, output={"schema": SCHEMA}, tools=["add"])
    first = await client.post("/v1/runs", body, 202)
    assert (await client.post("/v1/runs", body, 202))["id"] == first["id"]
    other = await client.http.post("/v1/runs", json={**body, "instructions": "Be brief."})
    assert other.json()["code"] == "run_id_conflict"
