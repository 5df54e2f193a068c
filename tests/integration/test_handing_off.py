"""Hand-off: another agent continues the run and the thread."""

from collections.abc import Sequence

import pytest

from app.agents.catalog import Catalog
from app.domain.ids import AgentId, CallId, ThreadId
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Blocked
from app.llm.scripted.model import Call, in_order, turn
from app.runtime.handoff import ACTIVE_AGENT, active_agent
from app.runtime.plugins import HandOff, HookView, Phase, Plugin, Request
from app.storage.threads import threads
from tests.support.echo_backend import Echo
from tests.support.probes import Probe
from tests.support.replicas import Replica, Run, an_agent, joined, of_type, open_replica, texts_of

pytestmark = pytest.mark.anyio


class AgentPair:
    """Two agents. The first hands off to the second after its first step; both record their hooks."""

    def __init__(self, *, to: str | None = "expert") -> None:
        self.at_work: list[str] = []
        self.changes: list[str] = []
        self.probe, self.special = Probe(), Probe(name="special")
        self.catalog: Catalog = joined(
            an_agent(self.probe.tool, id="clerk", plugins=[self._plugin("clerk_watch", to)]),
            an_agent(
                self.special.tool,
                id="expert",
                approval=["special"],
                plugins=[self._plugin("expert_watch", None)],
            ),
        )

    def _plugin(self, name: str, to: str | None) -> Plugin:
        async def note(view: HookView) -> Sequence[Request]:
            self.at_work.append(view.agent.id)
            return []

        async def hand_off(_: HookView) -> Sequence[Request]:
            return [] if to is None else [HandOff(AgentId(to))]

        def activated(*_: object) -> Sequence[Request]:
            self.changes.append(f"+{name}")
            return []

        def deactivated(*_: object) -> Sequence[Request]:
            self.changes.append(f"-{name}")
            return []

        return Plugin(
            name=name,
            hooks={Phase.STEP_START: note, Phase.STEP_END: hand_off},
            on_activate=activated,  # type: ignore[arg-type]  # requests nothing, so fits any kind of request
            on_deactivate=deactivated,  # type: ignore[arg-type]  # likewise
        )


async def test_the_other_agent_continues_the_same_run(database_url: str) -> None:
    pair = AgentPair()
    script = in_order(turn(pair.probe.call("c1")), turn("the expert's word"))
    async with open_replica(database_url, pair.catalog, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        record = await run.now()
        log = await run.log()
    assert pair.at_work == ["clerk", "expert"]
    assert pair.changes == ["+clerk_watch", "-clerk_watch", "+expert_watch"]
    assert emitted[-1]["result"]["response"] == "the expert's word"
    assert record.agent_id == "clerk"
    assert {entry.message.run_id for entry in log[1:]} == {run.id}


async def test_the_agent_that_was_handed_a_run_has_it_after_a_suspension(database_url: str) -> None:
    pair = AgentPair()
    script = in_order(turn(pair.probe.call("c1")), turn(pair.special.call("c2")), turn("done"))
    async with open_replica(database_url, pair.catalog, script) as replica:
        run = await replica.start()
        await run.finished()
    async with open_replica(database_url, pair.catalog, script) as other:
        current_agent = other.same(run)
        await current_agent.decide("perm_c2", "edit", arguments={"text": "that"})
        await current_agent.finished(2)
    assert [handed.text for handed in pair.special.handed] == ["that"]
    assert pair.at_work == ["clerk", "expert", "expert"]
    assert pair.changes == ["+clerk_watch", "-clerk_watch", "+expert_watch"]


async def _start(replica: Replica, agent: str, thread: ThreadId) -> Run:
    replica.starts_with = AgentId(agent)
    return await replica.start(thread_id=thread)


async def test_a_start_that_names_an_agent_uses_it(database_url: str) -> None:
    pair = AgentPair()
    script = in_order(
        turn(pair.probe.call("c1")), turn("by the expert"), turn("by the clerk, who gives nothing")
    )
    async with open_replica(database_url, pair.catalog, script) as replica:
        first = await replica.start()
        await first.finished()
        second = await _start(replica, "clerk", first.thread_id)
        await second.finished()
    assert pair.at_work == ["clerk", "expert", "clerk"]


async def test_a_start_without_an_agent_uses_the_threads_last_agent(database_url: str) -> None:
    pair = AgentPair()
    script = in_order(turn(pair.probe.call("c1")), turn("one"), turn("two"))
    async with open_replica(database_url, pair.catalog, script) as replica:
        first = await replica.start()
        await first.finished()
        second = await _start(replica, "", first.thread_id)
        await second.finished()
        assert (await second.now()).agent_id == "expert"
    assert pair.at_work == ["clerk", "expert", "expert"]


async def test_a_hand_off_to_an_unknown_agent_ends_the_run_blocked(database_url: str) -> None:
    pair = AgentPair(to="missing")
    script = in_order(turn(pair.probe.call("c1")))
    async with open_replica(database_url, pair.catalog, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
        state = (await run.now()).state
        log = await run.log()
    assert isinstance(state, Done)
    assert state.termination == Blocked("handoff resolve failed: there is no agent 'missing'")
    assert of_type(emitted, "run_finish")[0]["termination"]["type"] == "blocked"
    assert texts_of(log)[-1] == ("tool", "probe did it")


async def _agent_of_thread(run: Run) -> AgentId | None:
    """The agent that the thread's state names."""
    async with run.replica.database.reading() as connection:
        state = await threads.state(connection, run.record.tenant, run.thread_id)
    found = active_agent(state)
    return None if found is None else found[0]


async def test_after_a_hand_off_to_an_unknown_agent_the_thread_keeps_its_agent(
    database_url: str,
) -> None:
    pair = AgentPair(to="missing")
    script = in_order(turn(pair.probe.call("c1")), turn("the clerk again"))
    async with open_replica(database_url, pair.catalog, script) as replica:
        first = await replica.start()
        await first.finished()
        assert await _agent_of_thread(first) is None
        second = await _start(replica, "", first.thread_id)
        await second.finished()
        assert (await second.now()).agent_id == "clerk"


async def test_after_a_hand_off_to_a_remote_agent_the_thread_keeps_its_agent(
    database_url: str,
) -> None:
    echo = Echo()
    [remote] = echo.catalog.agents
    pair = AgentPair(to=remote)
    script = in_order(turn(pair.probe.call("c1")), turn("the clerk again"))
    catalog = joined(pair.catalog, echo.catalog)
    async with open_replica(database_url, catalog, script, backends=echo.backends) as replica:
        replica.starts_with = AgentId("clerk")
        first = await replica.start()
        await first.finished()
        state = (await first.now()).state
        assert isinstance(state, Done)
        assert isinstance(state.termination, Blocked)
        second = await _start(replica, "", first.thread_id)
        await second.finished()
        assert (await second.now()).agent_id == "clerk"
    assert echo.turns == []


async def test_a_failed_hand_off_leaves_the_thread_with_the_agent_of_the_hand_off_before(
    database_url: str,
) -> None:
    pair = AgentPair()
    special = Call(tool="special", id=CallId("c2"))
    without_agent = an_agent(
        pair.special.tool, id="expert", plugins=[pair._plugin("expert_watch", "missing")]
    )
    catalog = joined(pair.catalog, without_agent)
    script = in_order(turn(pair.probe.call("c1")), turn(special), turn("the expert again"))
    async with open_replica(database_url, catalog, script) as replica:
        first = await replica.start()
        await first.finished()
        assert await _agent_of_thread(first) == "expert"
        second = await _start(replica, "", first.thread_id)
        await second.finished()
        assert (await second.now()).agent_id == "expert"


async def test_after_a_run_of_a_remote_agent_the_thread_has_that_agent(database_url: str) -> None:
    """Also if an earlier run of the thread was handed to another agent."""
    echo, pair = Echo(), AgentPair()
    script = in_order(turn(pair.probe.call("c1")), turn("by the expert"))
    catalog = joined(pair.catalog, echo.catalog)
    async with open_replica(database_url, catalog, script, backends=echo.backends) as replica:
        first = await replica.start()
        await first.finished()
        for named in ("remote", ""):
            replica.starts_with = AgentId(named)
            run = await replica.start("say hello", thread_id=first.thread_id)
            await run.finished()
            assert (await run.now()).agent_id == "remote"


async def test_a_hand_off_request_stored_by_an_older_release_is_ignored(
    database_url: str,
) -> None:
    pair = AgentPair(to=None)
    script = in_order(turn("one"), turn("two"))
    async with open_replica(database_url, pair.catalog, script) as replica:
        first = await replica.start()
        await first.finished()
        async with replica.database.transaction() as connection:
            left = {ACTIVE_AGENT.name: {"agent_id": "missing"}}
            await threads.change(connection, first.record.tenant, first.thread_id, {"state": left})
        second = await _start(replica, "", first.thread_id)
        await second.finished()
        assert (await second.now()).agent_id == "clerk"
        assert await _agent_of_thread(second) == "clerk"


async def test_a_model_hands_off_by_a_tool(database_url: str) -> None:
    special = Probe(name="special")
    catalog = joined(
        an_agent(id="clerk", handoffs=(AgentId("expert"),)), an_agent(special.tool, id="expert")
    )
    transfer = Call(tool="transfer_to_expert", id=CallId("c1"))
    script = in_order(turn(transfer), turn(special.call("c2")), turn("done"))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        emitted = await run.finished()
    assert len(special.handed) == 1
    assert emitted[-1]["result"]["response"] == "done"
    assert [request.tools[0].name for request in script.requests] == [
        "transfer_to_expert",
        "special",
        "special",
    ]


async def test_a_hand_off_can_be_approved_like_any_call(database_url: str) -> None:
    catalog = joined(
        an_agent(id="clerk", handoffs=(AgentId("expert"),), approval=("transfer_to_expert",)),
        an_agent(id="expert"),
    )
    script = in_order(turn(Call(tool="transfer_to_expert", id=CallId("c1"))), turn("no, me"))
    async with open_replica(database_url, catalog, script) as replica:
        run = await replica.start()
        await run.finished()
        await run.decide("perm_c1", "reject", reason="stay")
        emitted = await run.finished(2)
    assert emitted[-1]["result"]["response"] == "no, me"
    assert [[tool.name for tool in request.tools] for request in script.requests] == [
        ["transfer_to_expert"]
    ] * 2
