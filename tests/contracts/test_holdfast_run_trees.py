"""A remote Holdfast whose agent delegates: questions of its child runs become tickets here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.backends.base import Abort
from app.backends.remote.run import turn_key
from app.clock import new_id
from app.commands.inputs.send import InputMode, InputRequest, ToRun, send_input
from app.domain.ids import MessageId
from app.domain.runs.runs import Done, Running, Waiting
from app.domain.runs.terminations import Cancelled
from app.domain.threads.messages import Base64Source, Media, Message, Role, Text
from app.domain.tickets.decisions import EXPIRED
from app.domain.tickets.tickets import Ticket, TicketStatus
from tests.support.conditions import eventually
from tests.support.remotes import HoldfastRemote, Remotes, remote
from tests.support.replicas import ANN, Replica, Run, decision, of_type, open_replica, types_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def there(remotes: Remotes) -> AsyncIterator[HoldfastRemote]:
    async with remote("holdfast", remotes) as opened:
        assert isinstance(opened, HoldfastRemote)
        yield opened


@asynccontextmanager
async def replica(url: str, there: HoldfastRemote, agent: str = "boss") -> AsyncIterator[Replica]:
    catalog = there.catalog_with(agent)
    async with open_replica(url, catalog, there.script, backends=there.backends) as opened:
        yield opened


async def asked(run: Run, *questions: str) -> list[Ticket]:
    """Waits until the run is suspended with exactly these open questions; returns their tickets."""

    async def open_tickets() -> list[Ticket] | None:
        if not isinstance((await run.now()).state, Waiting):
            return None
        found = [each for each in await run.tickets() if each.status is TicketStatus.OPEN]
        found.sort(key=lambda ticket: ticket.message)
        return found if [each.message for each in found] == sorted(questions) else None

    return await eventually(open_tickets)


async def statuses_of(run: Run) -> dict[str, TicketStatus]:
    return {each.message: each.status for each in await run.tickets()}


async def tickets_there(there: HoldfastRemote) -> list[dict[str, Any]]:
    async with there.server.client() as client:
        page = await client.get("/v1/tickets", status="open")
    known = {run["id"] for run in await there.runs()}
    return [each for each in page["items"] if each["run_id"] in known]


async def answer_there(there: HoldfastRemote, question: str, result: str) -> None:
    [ticket] = [each for each in await tickets_there(there) if each["message"] == question]
    given = {"ticket_id": ticket["id"], "action": "respond", "result": result}
    async with there.server.client() as client:
        await client.post(f"/v1/runs/{ticket['run_id']}/decisions", {"decisions": [given]})


@pytest.mark.parametrize(
    "prompt",
    ["give far ask which one?", "give lead give far ask which one?"],
    ids=["child", "deep"],
)
async def test_a_question_of_a_remotes_child_is_answered_here(
    database_url: str, there: HoldfastRemote, prompt: str
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start(prompt)
        [ticket] = await asked(run, "which one?")
        [original] = await tickets_there(there)
        assert ticket.name == f"remote:{original['id']}"
        assert (ticket.tool_name, ticket.arguments) == ("ask_person", original["arguments"])
        assert sorted(ticket.allowed_actions) == original["allowed_actions"]
        await run.decide(ticket.name, "respond", result="the red one")
        emitted = await run.ended()
    assert "the red one" in emitted[-1]["result"]["response"]
    assert len(of_type(emitted, "ticket_opened")) == 1


async def test_simultaneous_questions_are_relayed_and_answered_one_by_one(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("give far ask A? & lead give far ask B? & far say hello")
        first, second = await asked(run, "A?", "B?")
        await run.decide(second.name, "respond", result="to B")
        await asked(run, "A?")
        await run.decide(first.name, "respond", result="to A")
        emitted = await run.ended()
        assert set((await statuses_of(run)).values()) == {TicketStatus.DECIDED}
    assert all(each in emitted[-1]["result"]["response"] for each in ("to A", "to B", "hello"))


async def test_a_question_answered_at_the_remote_is_voided_here(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("give far ask A? & far ask B?")
        await asked(run, "A?", "B?")
        await answer_there(there, "A?", "given there")
        [ticket] = await asked(run, "B?")
        assert (await statuses_of(run))["A?"] is TicketStatus.VOID
        await run.decide(ticket.name, "respond", result="given here")
        emitted = await run.ended()
    assert all(each in emitted[-1]["result"]["response"] for each in ("given there", "given here"))
    assert len(of_type(emitted, "ticket_void")) == 1


async def test_a_run_ends_after_its_only_question_is_answered_at_the_remote(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there, "far") as here:
        run = await here.start("ask which one?")
        await asked(run, "which one?")
        await answer_there(there, "which one?", "the blue one")
        emitted = await run.ended()
        assert list((await statuses_of(run)).values()) == [TicketStatus.VOID]
    assert emitted[-1]["result"]["response"].strip() == "you answered: the blue one"


async def test_a_remote_that_waits_only_for_its_children_opens_no_ticket(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("give far hang & far say hello")
        await there.hanging()

        async def waits_there() -> bool:
            return any(each["status"] == "waiting" for each in await there.runs())

        await eventually(waits_there)
        assert isinstance((await run.now()).state, Running)
        await there.release()
        emitted = await run.ended()
    assert "still here" in emitted[-1]["result"]["response"]
    assert not of_type(emitted, "ticket_opened")


async def test_after_a_takeover_questions_of_children_are_relayed_once(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there) as first, replica(database_url, there) as second:
        run = await first.start("give far hang & far ask which one?")
        await there.hanging()
        await asked(run, "which one?")
        await first.kill()
        run = second.same(run)
        [ticket] = await asked(run, "which one?")
        await run.decide(ticket.name, "respond", result="the red one")
        await there.release()
        emitted = await run.ended()
    assert "the red one" in emitted[-1]["result"]["response"]
    assert len(of_type(emitted, "ticket_opened")) == 1
    assert len(await there.runs()) == 3


async def test_a_lost_worker_duplicates_no_child_at_the_remote(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there) as first, replica(database_url, there) as second:
        run = await first.start("give lead give far hang")
        await there.hanging()
        await first.kill()
        run = second.same(run)
        await there.release()
        emitted = await run.ended()
    assert "still here" in emitted[-1]["result"]["response"]
    assert types_of(emitted).count("run_start") == 1
    assert len(await there.runs()) == 3


@pytest.mark.parametrize("agent, words", [("far", "ask A?"), ("boss", "give far ask A?")])
async def test_messages_steered_while_the_remote_asks_reach_it_once(
    database_url: str, there: HoldfastRemote, agent: str, words: str
) -> None:
    picture = Media("image", Base64Source("image/png", "iVBORw=="), "dot.png")
    steered = Message(id=MessageId(new_id()), role=Role.USER, content=(Text("hurry"), picture))
    async with replica(database_url, there, agent) as here:
        run = await here.start(words)
        [ticket] = await asked(run, "A?")
        request = InputRequest(messages=(steered,), mode=InputMode.STEER)
        await send_input(here.ctx, ANN, ToRun(run.id), request, deliver=True)
        await run.decide(ticket.name, "respond", result="the red one")
        await run.ended()
        [root] = [each for each in await there.runs() if each["parent_run_id"] is None]
        async with there.server.client() as client:
            log = await client.get(f"/v1/threads/{root['thread_id']}/messages")
    assert [
        [block["type"] for block in each["content"]]
        for each in log["items"]
        if each["role"] == "user" and "hurry" in str(each["content"])
    ] == [["text", "image"]]
    assert len([each for each in await there.runs() if each["parent_run_id"] is None]) == 1


async def test_a_cancel_ends_all_runs_below_the_remote(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("give lead give far ask which one?")
        await asked(run, "which one?")
        await run.cancel("never mind")
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("never mind")

        async def all_cancelled() -> bool:
            return {each["outcome"] for each in await there.runs()} == {"cancelled"}

        await eventually(all_cancelled)


async def test_a_ticket_that_expires_here_is_rejected_at_the_remote(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there, "far") as here:
        run = await here.start("ask which one?")
        await asked(run, "which one?")
        await here.database.pool.execute(
            "UPDATE tickets SET expires_at = now(), on_expiry = 'reject' WHERE status = 'open'"
        )
        emitted = await run.ended()
        assert not await tickets_there(there)
    assert EXPIRED in emitted[-1]["result"]["response"]
    assert len(of_type(emitted, "ticket_opened")) == 1


async def test_an_answer_may_be_null_or_cancel_the_call(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("give far ask A? & far ask B?")
        first, second = await asked(run, "A?", "B?")
        await run.decide_all(
            decision(first.name, "respond", result=None),
            decision(second.name, "cancel", reason="not now"),
        )
        emitted = await run.ended()
    assert "null" in emitted[-1]["result"]["response"]
    assert "not now" in emitted[-1]["result"]["response"]


async def test_a_remote_run_can_be_aborted_by_its_turn_key_alone(
    database_url: str, there: HoldfastRemote
) -> None:
    async with replica(database_url, there, "far") as here:
        run = await here.start("hang")
        await there.hanging()
        endpoint = here.catalog.agents[run.record.agent_id].endpoint
        assert endpoint is not None
        for key in (turn_key(run.id, 0), turn_key(run.id, 7)):
            request = Abort(
                agent_id=run.record.agent_id,
                run_id=run.id,
                thread_id=run.thread_id,
                key=key,
                binding=None,
            )
            await there.backends.of(endpoint).abort(request)
        await run.ended()
    assert await there.aborts() == 1
