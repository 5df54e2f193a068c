"""`replaces`: the end of a conversation is replaced by another answer or another message."""

import asyncio
from collections.abc import Sequence

import pytest

from app.clock import new_id
from app.commands.runs.new_run import IfThreadMissing, OnActive, StartRequest
from app.commands.threads.fork import ForkRequest, fork
from app.domain.errors import Conflict, NotFound
from app.domain.ids import AgentId, MessageId, RunId, ThreadId
from app.domain.json_values import digest
from app.domain.runs.runs import RunRecord
from app.domain.slices import Order, PageRequest
from app.domain.threads.messages import (
    LoggedMessage,
    Message,
    MessageFilter,
    Role,
    Text,
    Visibility,
)
from app.domain.threads.replacements import FromMessage, FromRun, Replacement
from app.llm.scripted.model import Gate, Script, ScriptedTurn, in_order, turn
from app.queries import records
from app.runtime.plugins import HandOff, HookView, Phase, Plugin, Request
from app.runtime.ports.models import ModelRequest
from app.storage.threads import messages
from app.workers.direct_start import start_and_execute
from tests.support.invariants import broken_invariants
from tests.support.probes import Probe
from tests.support.replicas import (
    ANN,
    Replica,
    Run,
    an_agent,
    joined,
    of_type,
    open_replica,
    types_of,
)

pytestmark = pytest.mark.anyio


class RecordedRequests:
    """Plays a script, and records the texts of each request."""

    def __init__(self, *answers: ScriptedTurn) -> None:
        self.all: list[list[str]] = []
        self._next: Script = in_order(*answers)

    def __call__(self, request: ModelRequest) -> ScriptedTurn:
        self.all.append([message.text for message in request.messages])
        return self._next(request)


def user(text: str) -> Message:
    return Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),))


async def start(
    replica: Replica,
    *texts: str,
    thread_id: ThreadId | None = None,
    replaces: Replacement | None = None,
    agent_id: str | None = None,
) -> Run:
    request = StartRequest(
        agent_id=replica.starts_with if agent_id is None else AgentId(agent_id) or None,
        thread_id=thread_id or ThreadId(new_id()),
        run_id=None,
        messages=tuple(map(user, texts)),
        on_active=OnActive.ENQUEUE,
        if_thread_missing=IfThreadMissing.CREATE,
        metadata={},
        digest=digest([new_id()]),
        replaces=replaces,
    )
    return Run(replica, (await start_and_execute(replica.ctx, replica.worker, ANN, request)).record)


async def ended(run: Run) -> RunRecord:
    await run.ended()
    return await run.now()


async def listed(run: Run, *, all_of_it: bool = False) -> Sequence[LoggedMessage]:
    wanted = MessageFilter(visibility=Visibility.ALL, with_rolled_back=all_of_it)
    page = PageRequest(order=Order.ASC)
    return await records.list_messages(run.replica.ctx, ANN, run.thread_id, wanted, page)


def texts(log: Sequence[LoggedMessage]) -> list[str]:
    return [entry.message.text for entry in log]


async def test_a_run_is_replaced_by_one_with_the_same_messages(database_url: str) -> None:
    requests = RecordedRequests(turn("one"), turn("two"), turn("three"), turn("another"))
    async with open_replica(database_url, an_agent(), requests) as replica:
        first = await start(replica, "a")
        await ended(first)
        second = await start(replica, "b", "c", thread_id=first.thread_id)
        await ended(second)
        third = await start(replica, "d", thread_id=first.thread_id)
        await ended(third)
        new = await start(
            replica, thread_id=first.thread_id, replaces=FromRun(second.id), agent_id=""
        )
        record = await ended(new)
        assert requests.all[-1] == ["a", "one", "b", "c"]
        assert texts(await listed(new)) == ["a", "one", "b", "c", "another"]
        assert [(await run.now()).rolled_back_by for run in (first, second, third)] == [
            None,
            new.id,
            new.id,
        ]
        whole = await listed(new, all_of_it=True)
        assert [entry.seq for entry in whole] == list(range(1, len(whole) + 1))
        assert len({entry.message.id for entry in whole}) == len(whole)
        emitted = await new.ended()
        assert types_of(emitted)[:2] == ["run_created", "rolled_back"]
        [rolled_back] = of_type(emitted, "rolled_back")
        assert (rolled_back["by_run_id"], rolled_back["from_seq"], rolled_back["to_seq"]) == (
            new.id,
            3,
            7,
        )
        assert record.input is not None
        assert record.input.range is not None
        assert (record.input.range.from_seq, record.input.range.to_seq) == (8, 9)
    assert await broken_invariants(database_url) == {}


async def test_what_was_replaced_before_stays_replaced(database_url: str) -> None:
    """An earlier replacement lies within a later one, and each message is listed once."""
    requests = RecordedRequests(*map(turn, ("one", "two", "other two", "new")))
    async with open_replica(database_url, an_agent(), requests) as replica:
        first = await start(replica, "a")
        await ended(first)
        second = await start(replica, "b", thread_id=first.thread_id)
        await ended(second)
        third = await start(replica, thread_id=first.thread_id, replaces=FromRun(second.id))
        await ended(third)
        fourth = await start(replica, "z", thread_id=first.thread_id, replaces=FromRun(first.id))
        await ended(fourth)
        assert requests.all[-1] == ["z"]
        whole = await listed(fourth, all_of_it=True)
        assert texts(whole) == ["a", "one", "b", "two", "b", "other two", "z", "new"]
        by = [entry.rolled_back_by for entry in whole]
        assert by == [*[fourth.id] * 2, *[third.id] * 2, *[fourth.id] * 2, None, None]
        assert (await second.now()).rolled_back_by == third.id
    assert await broken_invariants(database_url) == {}


async def test_a_message_is_replaced_with_all_later_ones(database_url: str) -> None:
    requests = RecordedRequests(*map(turn, ("one", "two", "three")))
    async with open_replica(database_url, an_agent(), requests) as replica:
        first = await start(replica, "a", "b")
        await ended(first)
        edited = (await listed(first))[1].message.id
        second = await start(replica, "B", thread_id=first.thread_id, replaces=FromMessage(edited))
        await ended(second)
        assert requests.all[-1] == ["a", "B"], "the message before it is read again"
        [*_, answer] = await listed(second)
        third = await start(
            replica, "shorter", thread_id=first.thread_id, replaces=FromMessage(answer.message.id)
        )
        await ended(third)
        assert requests.all[-1] == ["a", "B", "shorter"], "an answer is replaced, not its question"
        assert texts(await listed(third)) == ["a", "B", "shorter", "three"]
    assert await broken_invariants(database_url) == {}


def handing_off() -> Plugin:
    async def hand_off(_: HookView) -> Sequence[Request]:
        return [HandOff(AgentId("expert"))]

    return Plugin(name="giver", hooks={Phase.STEP_END: hand_off})


async def test_the_thread_is_again_with_the_agent_that_it_had(database_url: str) -> None:
    """A hand-off of the replaced run counts no more."""
    probe = Probe()
    catalog = joined(
        an_agent(probe.tool, id="clerk", plugins=[handing_off()]),
        an_agent(probe.tool, id="expert"),
    )
    requests = RecordedRequests(turn(probe.call("c1")), *map(turn, ("one", "two", "three")))
    async with open_replica(database_url, catalog, requests) as replica:
        first = await start(replica, "a")
        await ended(first)
        thread_state = "SELECT state::text FROM threads WHERE id = $1"
        state = await replica.database.pool.fetchval(thread_state, first.thread_id)
        assert "expert" in str(state)
        handed = await start(replica, "b", thread_id=first.thread_id, agent_id="")
        assert (await ended(handed)).agent_id == "expert"
        new = await start(
            replica, "z", thread_id=first.thread_id, replaces=FromRun(first.id), agent_id=""
        )
        assert new.record.agent_id == "clerk"
        await ended(new)
    assert await broken_invariants(database_url) == {}


async def test_a_replacement_that_is_not_possible_changes_nothing(database_url: str) -> None:
    gate = Gate()
    requests = RecordedRequests(turn("one"), turn("two"), turn(gate, "late"))
    async with open_replica(database_url, an_agent(), requests) as replica:
        first = await start(replica, "a")
        await ended(first)
        asked = (await listed(first))[0].message.id
        second = await start(replica, "b", thread_id=first.thread_id, replaces=FromRun(first.id))
        await ended(second)
        elsewhere = ThreadId(new_id())
        for thread_id, replaced, code in (
            (first.thread_id, FromRun(RunId(new_id())), "run_not_found"),
            (elsewhere, FromRun(first.id), "run_not_found"),
            (first.thread_id, FromMessage(MessageId(new_id())), "message_not_found"),
            (first.thread_id, FromRun(first.id), "not_replaceable"),
            (first.thread_id, FromMessage(asked), "not_replaceable"),
        ):
            with pytest.raises((Conflict, NotFound)) as refused:
                await start(replica, "x", thread_id=thread_id, replaces=replaced)
            assert refused.value.code == code
        copy = ThreadId(new_id())
        await fork(
            replica.ctx,
            ANN,
            first.thread_id,
            ForkRequest(
                thread_id=copy,
                to_seq=None,
                run_id=None,
                title=None,
                resource_id=None,
                metadata=None,
            ),
        )
        copied = (await listed(second))[0].message.id
        with pytest.raises(Conflict, match="fork the thread up to the message before"):
            await start(replica, "x", thread_id=copy, replaces=FromMessage(copied))
        third = await start(replica, "c", thread_id=first.thread_id)
        await asyncio.wait_for(gate.reached.wait(), 60)
        with pytest.raises(Conflict) as busy:
            await start(replica, "x", thread_id=first.thread_id, replaces=FromRun(second.id))
        assert busy.value.code == "thread_busy"
        gate.open.set()
        await ended(third)
        assert texts(await listed(third)) == ["b", "two", "c", "late"]
    assert await broken_invariants(database_url) == {}


async def test_the_log_at_the_end_of_a_run_is_without_later_replacements(database_url: str) -> None:
    """A `run_end` hook that is called late sees what its run has written."""
    requests = RecordedRequests(*map(turn, ("one", "two", "three")))
    async with open_replica(database_url, an_agent(), requests) as replica:
        first = await start(replica, "a")
        await ended(first)
        second = await start(replica, "b", thread_id=first.thread_id, replaces=FromRun(first.id))
        await ended(second)
        third = await start(replica, "c", thread_id=first.thread_id, replaces=FromRun(second.id))
        await ended(third)
        tenant = first.record.tenant

        async def at_end(run: Run, log_end: int) -> list[str]:
            pool = replica.ctx.database.pool
            return texts(
                await messages.history_at_end(pool, tenant, run.thread_id, run.id, log_end)
            )

        assert await at_end(first, 2) == ["a", "one"]
        assert await at_end(second, 4) == ["b", "two"]
        assert await at_end(third, 6) == ["c", "three"]
