"""Permission at the gate: rules of the agents file, rules that people had remembered, and their end."""

from typing import Any

import pytest

from app.commands.tickets import rules
from app.commands.tickets.decision_types import DecisionRequest
from app.domain.errors import Invalid, NotFound
from app.domain.ids import AgentId, CallId, RuleId
from app.domain.rules.remembered import Match, Remember, RememberedRule, RuleScope
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.terms import ApproverRule
from app.llm.scripted.model import Call, in_order, turn
from tests.support.house import ANN, Replica, Run, an_agent, of_type, replica
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio


def ruled(probe: Probe, *rules: tuple[str, str], default: str = "ask", **more: Any) -> Any:
    """An agent with rules of its own in its file."""
    table = {
        "default": default,
        "rules": [{"tool": tool, "behavior": behavior} for tool, behavior in rules],
    }
    return an_agent(probe.tool, **{"plugin_tables": {"permission": table}, **more})


def call(probe: Probe, id: str, text: str) -> Call:
    return Call(tool=probe.name, arguments={"text": text}, id=CallId(id))


def remembering(
    action: str, scope: RuleScope, match: Match = Match.TOOL, *, ticket: str = "perm_c1"
) -> DecisionRequest:
    return DecisionRequest(
        ticket=ticket,
        answer=DecisionAnswer(action=Action(action), reason="once and for all"),
        decision_id=None,
        args_digest=None,
        remember=Remember(scope, match),
    )


async def results(run: Run) -> dict[str, str]:
    """What the model was told last of each call."""
    return {
        str(entry.message.tool_call_id): entry.message.text
        for entry in await run.log()
        if entry.message.tool_call_id
    }


async def active(house: Replica, *, with_revoked: bool = False) -> list[RememberedRule]:
    found = await rules.list_rules(
        house.ctx,
        ANN,
        scope=None,
        scope_id=None,
        agent_id=None,
        with_revoked=with_revoked,
        before=None,
        limit=50,
    )
    return list(found)


# --- rules of the agents file ---------------------------------------------------------------------


async def test_calls_run_are_asked_about_or_denied_by_the_rules(database_url: str) -> None:
    probe = Probe()
    agent = ruled(probe, ("probe(ls *)", "allow"), ("probe(rm *)", "deny"))
    script = in_order(
        turn(call(probe, "c1", "ls x"), call(probe, "c2", "rm x"), call(probe, "c3", "mv x")),
        turn("done"),
    )
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        said = await run.finished()
        assert said[-1]["waiting"]["ticket_ids"] == ["perm_c3"]
        [ticket] = await run.tickets()
        assert ticket.message == "Permission required for tool 'probe'"
        await run.decide("perm_c3", "approve")
        said = await run.finished(2)
        told = await results(run)
    assert said[-1]["termination"] == {"type": "natural_end"}, "a denial ends no run"
    assert told["c2"] == "Denied: a rule forbids this call"
    assert [handed.text for handed in probe.handed] == ["ls x", "mv x"]


async def test_an_edited_call_goes_through_the_gate_again(database_url: str) -> None:
    probe = Probe()
    agent = ruled(probe, ("probe(rm *)", "deny"))
    script = in_order(turn(call(probe, "c1", "ls x")), turn("done"))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await run.decide("perm_c1", "edit", arguments={"text": "rm x"})
        await run.finished(2)
        assert await results(run) == {"c1": "Denied: a rule forbids this call"}
        [ticket] = await run.tickets()
        assert ticket.arguments == {"text": "ls x"}
        assert ticket.decision is not None
        assert ticket.decision.answer.arguments == {"text": "rm x"}
    assert probe.handed == []


async def test_a_tool_that_never_runs_is_hidden_from_the_model(database_url: str) -> None:
    probe, other = Probe(), Probe(name="other")
    table = {"default": "allow", "rules": [{"tool": "probe", "behavior": "deny"}]}
    agent = an_agent(probe.tool, other.tool, plugin_tables={"permission": table})
    script = in_order(turn(call(other, "c1", "x")), turn("done"))
    async with replica(database_url, agent, script) as house:
        await (await house.start()).finished()
    assert [[tool.name for tool in request.tools] for request in script.requests] == [["other"]] * 2


# --- what people had remembered -------------------------------------------------------------------


@pytest.mark.parametrize("scope", list(RuleScope))
async def test_an_approval_is_remembered_as_far_as_was_said(
    database_url: str, scope: RuleScope
) -> None:
    probe = Probe()
    one_more = [turn(call(probe, "c1", "a")), turn("done")]
    script = in_order(
        turn(call(probe, "c1", "a")), turn(call(probe, "c2", "b")), turn("done"), *one_more * 2
    )
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), script) as house:
        run = await house.start()
        await run.finished()
        decided = await run.decide_all(remembering("approve", scope))
        said = await run.finished(2)
        assert said[-1]["termination"] == {"type": "natural_end"}, "the same run goes on"
        [made] = await active(house)
        assert made.rule.pattern.text == "probe"
        assert (made.scope, made.created_by, made.ticket) == (
            scope,
            "ann",
            decided.results[0].ticket.id,
        )
        assert decided.results[0].rule == made

        same_thread = await house.start("again", thread_id=run.thread_id)
        said = await same_thread.finished()
        reaches_thread = scope is not RuleScope.RUN
        assert (said[-1]["termination"]["type"] == "natural_end") is reaches_thread
        if not reaches_thread:
            await same_thread.decide("perm_c1", "reject")
            await same_thread.finished(2)
        elsewhere = await house.start()
        said = await elsewhere.finished()
        assert (said[-1]["termination"]["type"] == "natural_end") is (scope is RuleScope.AGENT)


async def test_a_rejection_is_remembered_with_its_reason(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(call(probe, "c1", "a")), turn(call(probe, "c2", "b")), turn("done"))
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), script) as house:
        run = await house.start()
        await run.finished()
        await run.decide_all(remembering("reject", RuleScope.RUN))
        said = await run.finished(2)
        assert said[-1]["termination"] == {"type": "natural_end"}
        assert await results(run) == dict.fromkeys(("c1", "c2"), "Denied: once and for all")
        assert len(of_type(said, "ticket_opened")) == 1
    assert probe.handed == []


async def test_only_exactly_these_arguments_may_be_remembered(database_url: str) -> None:
    probe = Probe()
    script = in_order(
        turn(call(probe, "c1", "a")),
        turn(call(probe, "c2", "a"), call(probe, "c3", "b")),
        turn("done"),
    )
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), script) as house:
        run = await house.start()
        await run.finished()
        await run.decide_all(remembering("approve", RuleScope.THREAD, Match.ARGUMENTS))
        said = await run.finished(2)
        assert said[-1]["waiting"]["ticket_ids"] == ["perm_c3"]
        [made] = await active(house)
        assert made.rule.arguments == {"text": "a"}
    assert [handed.text for handed in probe.handed] == ["a", "a"]


async def test_a_call_that_a_person_has_approved_runs_whatever_is_remembered(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(turn(call(probe, "c1", "a"), call(probe, "c2", "b")), turn("done"))
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), script) as house:
        run = await house.start()
        await run.finished()
        approve = DecisionRequest(
            ticket="perm_c2",
            answer=DecisionAnswer(action=Action.APPROVE),
            decision_id=None,
            args_digest=None,
        )
        await run.decide_all(remembering("reject", RuleScope.AGENT), approve)
        await run.finished(2)
    assert [handed.text for handed in probe.handed] == ["b"]


async def test_what_the_file_denies_nobody_allows_by_remembering(database_url: str) -> None:
    probe = Probe()
    before = an_agent(probe.tool, approval=["probe"])
    script = in_order(turn(call(probe, "c1", "rm x")), turn("done"))
    async with replica(database_url, before, script) as house:
        run = await house.start()
        await run.finished()
        await run.decide_all(remembering("approve", RuleScope.AGENT, Match.ARGUMENTS))
        await run.finished(2)
    script = in_order(turn(call(probe, "c1", "rm x")), turn("done"))
    async with replica(database_url, ruled(probe, ("probe(rm *)", "deny")), script) as house:
        run = await house.start()
        await run.finished()
        assert await results(run) == {"c1": "Denied: a rule forbids this call"}
    assert len(probe.handed) == 1


async def test_a_revoked_rule_counts_no_more(database_url: str) -> None:
    probe = Probe()
    asks = [turn(call(probe, "c1", "a")), turn("done")]
    script = in_order(*asks * 3)
    async with replica(database_url, an_agent(probe.tool, approval=["probe"]), script) as house:
        run = await house.start()
        await run.finished()
        await run.decide_all(remembering("approve", RuleScope.AGENT))
        await run.finished(2)
        said = await (await house.start()).finished()
        assert said[-1]["termination"] == {"type": "natural_end"}
        [made] = await active(house)
        await rules.revoke_rule(house.ctx, ANN, made.id)
        await rules.revoke_rule(house.ctx, ANN, made.id)
        assert await active(house) == []
        [kept] = await active(house, with_revoked=True)
        assert (kept.revoked_by, kept.id) == ("ann", made.id)
        said = await (await house.start()).finished()
        assert said[-1]["termination"] == {"type": "suspended"}
        with pytest.raises(NotFound):
            await rules.revoke_rule(house.ctx, ANN, RuleId(run.id))


async def test_a_rule_is_about_the_agent_that_asked(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(call(probe, "c1", "a")), turn("done"), turn(call(probe, "c1", "a")))
    agent = an_agent(probe.tool, approval=["probe"])
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        await run.decide_all(remembering("approve", RuleScope.THREAD))
        await run.finished(2)
        [made] = await active(house)
        assert made.agent_id == AgentId("tester")
        await house.database.pool.execute("UPDATE rules SET agent_id = 'another'")
        said = await (await house.start("more", thread_id=run.thread_id)).finished()
        assert said[-1]["termination"] == {"type": "suspended"}


async def test_what_cannot_be_remembered_is_refused(database_url: str) -> None:
    probe, asking = Probe(), Probe(name="asking", asks=1)
    agent = an_agent(
        probe.tool,
        asking.tool,
        approval=["probe"],
        approvers={"probe": ApproverRule(quorum=2)},
    )
    script = in_order(turn(call(probe, "c1", "a"), call(asking, "c2", "b")))
    async with replica(database_url, agent, script) as house:
        run = await house.start()
        await run.finished()
        for ticket in ("perm_c1", "c2"):
            with pytest.raises(Invalid) as refused:
                await run.decide_all(remembering("approve", RuleScope.RUN, ticket=ticket))
            assert refused.value.code == "remember_not_allowed"
        assert await active(house) == []
        await run.decide_all(remembering("reject", RuleScope.RUN))
        assert len(await active(house)) == 1
