"""Frontend tools: a client's own, offered for one run; a call of one waits for the client."""

import asyncio
from typing import Any

import pytest

from app import telemetry
from app.clock import new_id
from app.domain.agents.specs import ToolExecution
from app.domain.errors import Invalid
from app.domain.ids import AgentId, CallId
from app.domain.threads.messages import Role
from app.domain.tickets.tickets import TicketKind
from app.domain.tools.tool_calls import ResumeMode, SuspensionRequest
from app.llm.scripted.model import Call, Gate, in_order, turn
from app.runtime.plugins import HandOff, Phase, Suspend
from app.tools.functions.decorator import tool
from tests.support.finishes import asked_by
from tests.support.hooks import Hooks, about
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, joined, open_replica
from tests.support.streams import Client, start_body

pytestmark = pytest.mark.anyio

PICK = {
    "name": "pick_color",
    "description": "Let the user pick a color.",
    "parameters": {
        "type": "object",
        "properties": {"shade": {"type": "string"}},
        "required": ["shade"],
    },
}

WIDE = {
    "name": "pick_color",
    "description": "",
    "parameters": {
        "type": "object",
        "properties": {"x": {"type": "array", "items": {"allOf": [{"type": "integer"}] * 1000}}},
    },
}
"""Each number of an argument is compared with a thousand schemas."""


def numbers(count: int) -> dict[str, Any]:
    return {"x": [1] * count}


def pick(id: str, **arguments: Any) -> Call:
    return Call(tool="pick_color", arguments=arguments or {"shade": "dark"}, id=CallId(id))


async def results(run: Run) -> list[str]:
    return [e.message.text for e in await run.log() if e.message.role is Role.TOOL]


async def test_frontend_tool_intercept_suspend_and_resume(database_url: str) -> None:
    """injected_frontend_tool_uses_suspension_id_resume_chain, too."""
    probe = Probe()
    script = in_order(turn(pick("c1"), probe.call("c2"), pick("c3")), turn("done"))
    async with open_replica(database_url, an_agent(probe.tool), script) as replica:
        run = await replica.start(frontend_tools=[PICK])
        emitted = await run.finished()
        first, _ = await run.tickets()
        assert (first.name, first.kind, first.reason, first.message, first.resume_mode) == (
            "suspend_c1",
            TicketKind.FRONTEND,
            "tool:pick_color",
            "Frontend tool 'pick_color' requires client execution",
            ResumeMode.USE_DECISION_AS_TOOL_RESULT,
        )
        assert first.arguments == {"shade": "dark"}
        # Other calls of the batch are executed: only the frontend call waits.
        assert asked_by(emitted[-1]) == ["suspend_c1", "suspend_c3"]
        assert len(probe.handed) == 1
        for action in ("approve", "edit"):
            with pytest.raises(Invalid) as refused:
                await run.decide("suspend_c1", action, arguments={"shade": "x"})
            assert refused.value.code == "action_not_allowed"
        await run.decide("suspend_c1", "respond", result={"color": "red"})
        await run.finished(2)
        await run.decide("suspend_c3", "respond", result={"error": "closed"})
        emitted = await run.finished(3)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
    offered = {each.name: each for each in script.requests[0].tools}
    assert list(offered) == ["pick_color", "probe"]
    assert offered["pick_color"].parameters == PICK["parameters"]
    shown = {m.tool_call_id: m.text for m in script.requests[1].messages if m.tool_call_id}
    assert shown == {"c1": '{"color":"red"}', "c2": "probe did it", "c3": "closed"}


@pytest.mark.parametrize("mode", list(ToolExecution))
async def test_arguments_that_break_the_clients_schema_are_an_error(
    database_url: str, mode: ToolExecution
) -> None:
    script = in_order(turn(pick("c1", shade=5)), turn("done"))
    async with open_replica(database_url, an_agent(tool_execution=mode), script) as replica:
        run = await replica.start(frontend_tools=[PICK])
        await run.finished()
        [result] = await results(run)
        assert result.startswith("Invalid arguments: shade: ")


async def test_arguments_that_take_too_long_to_validate_are_an_error(database_url: str) -> None:
    asks = about("c2", Suspend(SuspensionRequest("May it?", suspension_id="may")))
    hooks = Hooks({Phase.TOOL_GATE: lambda view: () if view.was_approved else asks(view)})
    script = in_order(turn(pick("c1", **numbers(20_000))), turn(pick("c2", **numbers(1))))
    async with open_replica(database_url, an_agent(plugins=[hooks.plugin]), script) as replica:
        run = await replica.start(frontend_tools=[WIDE])
        await run.finished()
        result, *_ = await results(run)
        assert result.startswith("Invalid arguments: too large for its schema. ")
        with pytest.raises(Invalid) as refused:
            await run.decide("may", "edit", arguments=numbers(20_000))
        assert refused.value.code == "arguments_invalid"
        assert "Send less at a time" in str(refused.value)


async def test_a_worker_that_takes_over_offers_the_clients_tools(database_url: str) -> None:
    gate = Gate()
    async with open_replica(database_url, an_agent(), in_order(turn(gate))) as first:
        run = await first.start(frontend_tools=[PICK])
        await asyncio.wait_for(gate.reached.wait(), 15)
        await first.kill()
    async with open_replica(database_url, an_agent(), in_order(turn(pick("c1")))) as second:
        emitted = await second.same(run).finished()
        assert asked_by(emitted[-1]) == ["suspend_c1"]
    script = in_order(turn(pick("c2")), turn("done"))
    async with open_replica(database_url, an_agent(), script) as third:
        run = third.same(run)
        await run.decide("suspend_c1", "respond", result="blue")
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["suspend_c2"]


async def test_an_agent_that_was_handed_the_run_has_the_clients_tools(database_url: str) -> None:
    probe = Probe()
    hooks = Hooks({Phase.AFTER_TOOL_EXECUTE: about("c1", HandOff(AgentId("other")))})
    agents = joined(an_agent(probe.tool, plugins=[hooks.plugin]), an_agent(probe.tool, id="other"))
    script = in_order(turn(probe.call("c1")), turn(pick("c2")))
    async with open_replica(database_url, agents, script) as replica:
        run = await replica.start(frontend_tools=[PICK])
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["suspend_c2"]
    assert [each.name for each in script.requests[1].tools] == ["pick_color", "probe"]


async def test_the_next_run_of_the_thread_has_no_frontend_tools(database_url: str) -> None:
    script = in_order(turn("one"), turn(pick("c1")), turn("two"))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start(frontend_tools=[PICK])
        await run.finished()
        following = await replica.start(thread_id=run.thread_id)
        await following.finished()
        assert await results(following) == ["tool 'pick_color' not found"]
    assert [len(request.tools) for request in script.requests] == [1, 0, 0]


async def test_an_approval_comes_before_the_clients_ticket(database_url: str) -> None:
    asks = about("c1", Suspend(SuspensionRequest("May it?", suspension_id="may")))
    hooks = Hooks({Phase.TOOL_GATE: lambda view: () if view.was_approved else asks(view)})
    script = in_order(turn(pick("c1")), turn("done"))
    async with open_replica(database_url, an_agent(plugins=[hooks.plugin]), script) as replica:
        run = await replica.start(frontend_tools=[PICK])
        await run.finished()
        with pytest.raises(Invalid) as refused:
            await run.decide("may", "edit", arguments={"shade": 5})
        assert refused.value.code == "arguments_invalid"
        await run.decide("may", "edit", arguments={"shade": "light"})
        await run.finished(2)
        ticket = (await run.tickets())[-1]
        assert (ticket.name, ticket.arguments) == ("suspend_c1", {"shade": "light"})
        await run.decide("suspend_c1", "respond", result="blue")
        emitted = await run.finished(3)
        assert emitted[-1]["termination"] == {"type": "natural_end"}


async def test_a_frontend_tool_cannot_have_the_name_of_an_agents_tool(database_url: str) -> None:
    @tool
    def pick_color(shade: str) -> str:
        return shade

    async with open_replica(database_url, an_agent(pick_color), in_order()) as replica:
        with pytest.raises(Invalid) as refused:
            await replica.start(frontend_tools=[PICK])
        assert refused.value.code == "frontend_tool_taken"
        assert refused.value.facts["names"] == ["pick_color"]


# --- over HTTP ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tools, mistake",
    [
        ([{**PICK, "name": "no spaces"}], "name"),
        ([{"description": "nameless"}], "name"),
        ([PICK, PICK], "same name"),
        ([{**PICK, "parameters": {"type": "array"}}], "must describe an object"),
        ([{**PICK, "parameters": {"type": "object", "properties": 5}}], "isn't valid"),
        (
            [{**PICK, "parameters": {"type": "object", "$ref": "https://example.org/schema"}}],
            '$ref has to refer to \\"#/$defs/',
        ),
        ([{**PICK, "command": "rm"}], "command"),
        ([{**PICK, "name": f"t{number}"} for number in range(65)], "64"),
        (["pick_color"], "frontend_tools"),
        (
            [
                {"name": f"t{number}", "parameters": {"enum": list(range(4_000))}}
                for number in range(3)
            ],
            "more than 10000 values",
        ),
        ([{**PICK, "name": "add"}], "frontend_tool_taken"),
    ],
)
async def test_tools_that_cannot_be_offered_are_refused(
    client: Client, tools: list[object], mistake: str
) -> None:
    body = start_body("quick", "hello", frontend_tools=tools)
    answer = await client.http.post("/v1/runs", json=body)
    assert answer.status_code == 422
    assert mistake in answer.text


async def test_a_schema_outside_of_the_subset_has_a_code_of_its_own(client: Client) -> None:
    """With another mistake in the request, the code is that of an invalid request."""
    parameters = {"type": "object", "properties": {"a": {"pattern": "(?=a)"}}}
    body = start_body("quick", "hello", frontend_tools=[{**PICK, "parameters": parameters}])
    refused = (await client.http.post("/v1/runs", json=body)).json()
    assert refused["code"] == "schema_unsupported"
    [place] = refused["errors"]
    assert place["at"] == "body.frontend_tools.0.parameters"
    assert "properties.a.pattern" in place["problem"]
    refused = (await client.http.post("/v1/runs", json={**body, "unknown": 1})).json()
    assert refused["code"] == "invalid_request"


async def test_a_client_executes_its_tool_over_http(client: Client) -> None:
    offered = {"name": "pick_color", "parameters": PICK["parameters"]}
    prompt = 'CALL pick_color {"shade": "dark"}'
    started = await client.start("quick", prompt, frontend_tools=[offered])
    run = await client.settled(started["id"])
    request = (await client.run(started["id"], include="trace"))["request"]
    assert request["frontend_tools"] == [{**PICK, "description": ""}]
    [ticket] = run["waiting"]["tickets"]
    assert (ticket["name"], ticket["kind"]) == (
        f"suspend_{ticket['tool_call_id']}",
        "frontend",
    )
    assert ticket["allowed_actions"] == ["cancel", "reject", "respond"]
    await client.decide(run, "respond", result="midnight blue")
    async with asyncio.timeout(60):
        while not (run := await client.run(run["id"], wait=10))["final_output"]:
            pass
    assert "midnight blue" in run["final_output"]


async def test_another_offer_is_another_request(client: Client) -> None:
    run_id = new_id()
    first = await client.start("quick", "hello", run_id=run_id, frontend_tools=[PICK])
    again = await client.start("quick", "hello", run_id=run_id, frontend_tools=[PICK])
    assert first["id"] == again["id"]
    body = start_body("quick", "hello", run_id=run_id)
    assert (await client.http.post("/v1/runs", json=body)).status_code == 409


async def test_unknown_tool_names_share_one_metric_label(database_url: str) -> None:
    def counted() -> dict[str, float]:
        [metric] = telemetry.tool_calls.collect()
        return {
            sample.labels["tool"]: sample.value
            for sample in metric.samples
            if sample.labels["outcome"] == "failed" and sample.name.endswith("_total")
        }

    before = counted()
    calls = [Call(tool=name, arguments={}, id=CallId(name)) for name in ("made_up", "made_up_too")]
    async with open_replica(
        database_url, an_agent(), in_order(turn(*calls), turn("done"))
    ) as replica:
        run = await replica.start()
        await run.finished()
        assert len(await results(run)) == 2
    after = counted()
    assert after["unknown"] - before.get("unknown", 0) == 2
    assert not any("made_up" in name for name in after)
