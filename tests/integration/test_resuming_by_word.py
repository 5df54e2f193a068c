"""Decisions in two words, resume and cancel: each ticket takes them as what it is for."""

from dataclasses import replace
from typing import Any

import pytest

from app.commands.tickets.resume import ResumeAction, ResumeRequest, as_decision
from app.domain.ids import CallId
from app.domain.json_values import Json
from app.domain.tickets.decisions import Action
from app.domain.tools.tool_calls import ResumeMode
from app.llm.scripted.model import Call, in_order, turn
from app.runtime.ports import ToolContext
from app.tools.functions.decorator import tool
from tests.support.house import ANN, an_agent, replica
from tests.support.problems import the_problem
from tests.support.streams import Client

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("mode", "payload", "action", "given"),
    [
        (ResumeMode.REPLAY_TOOL_CALL, {"amount": 5}, Action.APPROVE, None),
        (ResumeMode.PASS_DECISION_TO_TOOL, {"amount": 5}, Action.EDIT, {"amount": 5}),
        (ResumeMode.PASS_DECISION_TO_TOOL, "five", Action.APPROVE, "five"),
        (ResumeMode.USE_DECISION_AS_TOOL_RESULT, "five", Action.RESPOND, "five"),
    ],
)
async def test_resume_means_what_the_ticket_is_for(
    database_url: str, mode: ResumeMode, payload: Json, action: Action, given: Json
) -> None:
    @tool(name="pay", effect="unsafe")
    async def pay(ctx: ToolContext, amount: int = 1) -> Any:
        return replace(ctx.suspend("How much?"), resume_mode=mode)

    script = in_order(turn(Call(tool="pay", arguments={}, id=CallId("c1"))))
    async with replica(database_url, an_agent(pay), script) as house:
        run = await house.start()
        await run.finished()
        meant = await as_decision(house.ctx, ANN, run.id, _wish("c1", "resume", payload))
        taken_back = await as_decision(house.ctx, ANN, run.id, _wish("c1", "cancel", payload))
    assert (meant.answer.action, meant.answer.payload) == (action, given)
    assert (taken_back.answer.action, taken_back.answer.payload) == (Action.CANCEL, payload)
    assert meant.answer.reason == "because"


def _wish(ticket: str, action: str, payload: Json) -> ResumeRequest:
    return ResumeRequest(
        ticket=ticket,
        action=ResumeAction(action),
        payload=payload,
        reason="because",
        decision_id=None,
    )


async def waiting(client: Client) -> dict[str, Any]:
    started = await client.start("quick", 'CALL risky {"what": "it"}')
    return await client.settled(started["run_id"])


def body_for(run: dict[str, Any], action: str) -> dict[str, Any]:
    return {"toolCallId": run["waiting"]["tickets"][0]["tool_call_id"], "action": action}


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_a_run_goes_on_by_one_word(client: Client, by: str) -> None:
    run = await waiting(client)
    path = f"/v1/{by}s/{run[f'{by}_id']}/decision"
    told = await client.post(path, body_for(run, "resume"), 202)
    assert (told["status"], told["run_id"]) == ("decision_submitted", run["run_id"])
    assert told["tool_call_id"] == run["waiting"]["tickets"][0]["tool_call_id"]
    assert (await client.settled(run["run_id"]))["outcome"] == "succeeded"
    assert await client.post(path, body_for(run, "resume"), 202) == told
    other = await client.http.post(path, json=body_for(run, "cancel"))
    the_problem(other, 409, "ticket_already_decided")


async def test_a_call_is_taken_back_by_one_word(client: Client) -> None:
    run = await waiting(client)
    body = {**body_for(run, "cancel"), "reason": "too much", "decisionId": "mine"}
    told = await client.post(f"/v1/runs/{run['run_id']}/decision", body, 202)
    assert told["decision_id"] == "mine"
    done = await client.settled(run["run_id"])
    assert done["outcome"] == "succeeded", "it ends the call, never the run"
    ticket = await client.get(f"/v1/tickets/{run['waiting']['tickets'][0]['id']}")
    assert ticket["decision"]["reason"] == "too much"


async def test_a_thread_without_runs_has_nothing_to_resume(client: Client) -> None:
    thread = await client.post("/v1/threads", {}, 201)
    path = f"/v1/threads/{thread['thread_id']}/decision"
    body = {"ticket_id": "call_1", "action": "resume"}
    the_problem(await client.http.post(path, json=body), 404, "ticket_not_found")
