"""Permission at the gate: rules of the agents file, remembered rules, and their revocation."""

from typing import Any

import pytest

from app.commands.tickets import rules
from app.commands.tickets.decision_types import DecisionRequest
from app.domain.agents.tool_search import ToolSearchMode, ToolSearchPolicy
from app.domain.errors import Invalid, NotFound
from app.domain.ids import AgentId, CallId, RuleId
from app.domain.rules.remembered import Match, Remember, RememberedRule, RuleScope
from app.domain.slices import PageRequest
from app.domain.tickets.decisions import Action, DecisionAnswer
from app.domain.tickets.terms import ApproverRule
from app.llm.scripted.model import Call, in_order, turn
from app.tools.functions.decorator import tool
from tests.support.finishes import asked_by
from tests.support.probes import Probe
from tests.support.replicas import ANN, Replica, Run, an_agent, of_type, open_replica

pytestmark = pytest.mark.anyio


def agent_with_rules(
    probe: Probe, *rules: tuple[str, str], default: str = "ask", **more: Any
) -> Any:
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
    """The last result of each call in the log."""
    return {
        str(entry.message.tool_call_id): entry.message.text
        for entry in await run.log()
        if entry.message.tool_call_id
    }


async def active(replica: Replica, *, with_revoked: bool = False) -> list[RememberedRule]:
    found = await rules.list_rules(
        replica.ctx,
        ANN,
        scope=None,
        scope_id=None,
        agent_id=None,
        with_revoked=with_revoked,
        requested=PageRequest(),
    )
    return list(found)


# --- rules of the agents file ---------------------------------------------------------------------


async def test_rules_allow_ask_or_deny_calls(database_url: str) -> None:
    probe = Probe()
    agent = agent_with_rules(probe, ("probe(ls *)", "allow"), ("probe(rm *)", "deny"))
    script = in_order(
        turn(call(probe, "c1", "ls x"), call(probe, "c2", "rm x"), call(probe, "c3", "mv x")),
        turn("done"),
    )
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["perm_c3"]
        [ticket] = await run.tickets()
        assert ticket.message == "Permission required for tool 'probe'"
        await run.decide("perm_c3", "approve")
        emitted = await run.finished(2)
        texts = await results(run)
    assert emitted[-1]["termination"] == {"type": "natural_end"}, "a denial ends no run"
    assert texts["c2"] == "Denied: a rule forbids this call"
    assert [handed.text for handed in probe.handed] == ["ls x", "mv x"]


async def test_a_comparison_decides_by_the_arguments_and_an_edit_is_compared_again(
    database_url: str,
) -> None:
    handed: list[float] = []

    @tool
    async def refund(amount: float, note: str = "") -> str:
        """Pay money back."""
        handed.append(amount)
        return "paid"

    table = {
        "default": "allow",
        "rules": [
            {"tool": "refund(amount > 50)", "behavior": "ask"},
            {"tool": "refund(amount > 1000)", "behavior": "deny", "reason": "Call the bank."},
        ],
    }
    agent = an_agent(refund, plugin_tables={"permission": table})
    calls = [
        Call(tool="refund", arguments={"amount": amount}, id=CallId(f"c{amount}"))
        for amount in (50, 51, 1001)
    ]
    async with open_replica(database_url, agent, in_order(turn(*calls), turn("done"))) as replica:
        run = await replica.start()
        emitted = await run.finished()
        assert asked_by(emitted[-1]) == ["perm_c51"]
        await run.decide("perm_c51", "edit", arguments={"amount": 2000})
        await run.finished(2)
        assert (await results(run)) | {"c50": ""} == {
            "c50": "",
            "c51": "Denied: Call the bank.",
            "c1001": "Denied: Call the bank.",
        }
    assert handed == [50]


async def test_an_edited_call_goes_through_the_gate_again(database_url: str) -> None:
    probe = Probe()
    agent = agent_with_rules(probe, ("probe(rm *)", "deny"))
    script = in_order(turn(call(probe, "c1", "ls x")), turn("done"))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "edit", arguments={"text": "rm x"})
        await run.finished(2)
        assert await results(run) == {"c1": "Denied: a rule forbids this call"}
        [ticket] = await run.tickets()
        assert ticket.arguments == {"text": "ls x"}
        assert ticket.decision is not None
        assert ticket.decision.answer.arguments == {"text": "rm x"}
    assert probe.handed == []


async def test_a_tool_that_is_always_denied_is_not_offered_to_the_model(database_url: str) -> None:
    probe, other = Probe(), Probe(name="other")
    table = {"default": "allow", "rules": [{"tool": "probe", "behavior": "deny"}]}
    agent = an_agent(probe.tool, other.tool, plugin_tables={"permission": table})
    script = in_order(turn(call(other, "c1", "x")), turn("done"))
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    assert [[tool.name for tool in request.tools] for request in script.requests] == [["other"]] * 2


async def test_a_denied_tool_that_comes_with_the_request_is_not_offered(database_url: str) -> None:
    probe = Probe()
    table = {
        "default": "allow",
        "rules": [{"tool": "pick_*", "behavior": "deny", "frontend": True}],
    }
    agent = an_agent(probe.tool, plugin_tables={"permission": table})
    pick = {"name": "pick_color", "description": "Pick.", "parameters": {"type": "object"}}
    script = in_order(turn("done"))
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start(frontend_tools=[pick])).finished()
    assert [[tool.name for tool in request.tools] for request in script.requests] == [["probe"]]


async def test_the_search_tool_is_offered_although_rules_deny_what_they_do_not_name(
    database_url: str,
) -> None:
    probes = [Probe(name=name) for name in ("apple", "banana")]
    table = {"default": "deny", "rules": [{"tool": "apple", "behavior": "allow"}]}
    agent = an_agent(
        *(probe.tool for probe in probes),
        plugin_tables={"permission": table},
        tool_search=ToolSearchPolicy(mode=ToolSearchMode.ON),
    )
    search = Call(tool="search_tools", arguments={"query": "apple banana"}, id=CallId("c1"))
    script = in_order(turn(search), turn("done"))
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    shown = [[tool.name for tool in request.tools] for request in script.requests]
    assert shown == [["search_tools"], ["search_tools", "apple"]]


# --- remembered rules -----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", list(RuleScope))
async def test_an_approval_is_remembered_in_its_scope(database_url: str, scope: RuleScope) -> None:
    probe = Probe()
    one_more = [turn(call(probe, "c1", "a")), turn("done")]
    script = in_order(
        turn(call(probe, "c1", "a")), turn(call(probe, "c2", "b")), turn("done"), *one_more * 2
    )
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        decided = await run.decide_all(remembering("approve", scope))
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}, "the same run continues"
        [made] = await active(replica)
        assert made.rule.pattern.text == "probe"
        assert (made.scope, made.created_by, made.ticket) == (
            scope,
            "ann",
            decided.results[0].ticket.id,
        )
        assert decided.results[0].rule == made

        same_thread = await replica.start("again", thread_id=run.thread_id)
        emitted = await same_thread.finished()
        applies_to_thread = scope is not RuleScope.RUN
        assert (emitted[-1]["termination"]["type"] == "natural_end") is applies_to_thread
        if not applies_to_thread:
            await same_thread.decide("perm_c1", "reject")
            await same_thread.finished(2)
        elsewhere = await replica.start()
        emitted = await elsewhere.finished()
        assert (emitted[-1]["termination"]["type"] == "natural_end") is (scope is RuleScope.AGENT)


async def test_a_rejection_is_remembered_with_its_reason(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(call(probe, "c1", "a")), turn(call(probe, "c2", "b")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide_all(remembering("reject", RuleScope.RUN))
        emitted = await run.finished(2)
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        assert await results(run) == dict.fromkeys(("c1", "c2"), "Denied: once and for all")
        assert len(of_type(emitted, "ticket_opened")) == 1
    assert probe.handed == []


async def test_an_approval_can_be_remembered_for_exactly_these_arguments(database_url: str) -> None:
    probe = Probe()
    script = in_order(
        turn(call(probe, "c1", "a")),
        turn(call(probe, "c2", "a"), call(probe, "c3", "b")),
        turn("done"),
    )
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide_all(remembering("approve", RuleScope.THREAD, Match.ARGUMENTS))
        emitted = await run.finished(2)
        assert asked_by(emitted[-1]) == ["perm_c3"]
        [made] = await active(replica)
        assert made.rule.arguments == {"text": "a"}
    assert [handed.text for handed in probe.handed] == ["a", "a"]


async def test_an_approved_call_runs_despite_a_remembered_denial(
    database_url: str,
) -> None:
    probe = Probe()
    script = in_order(turn(call(probe, "c1", "a"), call(probe, "c2", "b")), turn("done"))
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
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


async def test_a_remembered_approval_does_not_override_a_denial_of_the_agents_file(
    database_url: str,
) -> None:
    probe = Probe()
    before = an_agent(probe.tool, approval=["probe"])
    script = in_order(turn(call(probe, "c1", "rm x")), turn("done"))
    async with open_replica(database_url, before, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide_all(remembering("approve", RuleScope.AGENT, Match.ARGUMENTS))
        await run.finished(2)
    script = in_order(turn(call(probe, "c1", "rm x")), turn("done"))
    async with open_replica(
        database_url, agent_with_rules(probe, ("probe(rm *)", "deny")), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        assert await results(run) == {"c1": "Denied: a rule forbids this call"}
    assert len(probe.handed) == 1


async def test_a_revoked_rule_has_no_effect(database_url: str) -> None:
    probe = Probe()
    needs_approval = [turn(call(probe, "c1", "a")), turn("done")]
    script = in_order(*needs_approval * 3)
    async with open_replica(
        database_url, an_agent(probe.tool, approval=["probe"]), script
    ) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide_all(remembering("approve", RuleScope.AGENT))
        await run.finished(2)
        emitted = await (await replica.start()).finished()
        assert emitted[-1]["termination"] == {"type": "natural_end"}
        [made] = await active(replica)
        await rules.revoke_rule(replica.ctx, ANN, made.id)
        await rules.revoke_rule(replica.ctx, ANN, made.id)
        assert await active(replica) == []
        [revoked] = await active(replica, with_revoked=True)
        assert (revoked.revoked_by, revoked.id) == ("ann", made.id)
        emitted = await (await replica.start()).finished()
        assert emitted[-1]["termination"] == {"type": "suspended"}
        with pytest.raises(NotFound):
            await rules.revoke_rule(replica.ctx, ANN, RuleId(run.id))


async def test_a_remembered_rule_applies_to_its_agent_only(database_url: str) -> None:
    probe = Probe()
    script = in_order(turn(call(probe, "c1", "a")), turn("done"), turn(call(probe, "c1", "a")))
    agent = an_agent(probe.tool, approval=["probe"])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide_all(remembering("approve", RuleScope.THREAD))
        await run.finished(2)
        [made] = await active(replica)
        assert made.agent_id == AgentId("tester")
        await replica.database.pool.execute("UPDATE rules SET agent_id = 'another'")
        emitted = await (await replica.start("more", thread_id=run.thread_id)).finished()
        assert emitted[-1]["termination"] == {"type": "suspended"}


async def test_a_decision_that_cannot_be_remembered_is_refused(database_url: str) -> None:
    probe, asking = Probe(), Probe(name="asking", asks=1)
    agent = an_agent(
        probe.tool,
        asking.tool,
        approval=["probe"],
        approvers={"probe": ApproverRule(quorum=2)},
    )
    script = in_order(turn(call(probe, "c1", "a"), call(asking, "c2", "b")))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        for ticket in ("perm_c1", "c2"):
            with pytest.raises(Invalid) as refused:
                await run.decide_all(remembering("approve", RuleScope.RUN, ticket=ticket))
            assert refused.value.code == "remember_not_allowed"
        assert await active(replica) == []
        await run.decide_all(remembering("reject", RuleScope.RUN))
        assert len(await active(replica)) == 1
