"""Another Holdfast whose agent has others work for it: what these ask there, people are asked here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.backends.base import Abort
from app.backends.remote.run import turn_key
from app.domain.runs.runs import Done, Running, Waiting
from app.domain.runs.terminations import Cancelled
from app.domain.tickets.decisions import EXPIRED
from app.domain.tickets.tickets import Ticket, TicketStatus
from tests.support.conditions import eventually
from tests.support.house import Replica, Run, decision, of_type, replica, types_of
from tests.support.remotes import HoldfastRemote, Remotes, remote

pytestmark = pytest.mark.anyio


@pytest.fixture
async def there(remotes: Remotes) -> AsyncIterator[HoldfastRemote]:
    async with remote("holdfast", remotes) as opened:
        assert isinstance(opened, HoldfastRemote)
        yield opened


@asynccontextmanager
async def house(url: str, there: HoldfastRemote, agent: str = "boss") -> AsyncIterator[Replica]:
    catalog = there.catalog_with(agent)
    async with replica(url, catalog, there.script, backends=there.backends) as opened:
        yield opened


async def asked(run: Run, *questions: str) -> list[Ticket]:
    """The open tickets of a run at rest, once they are just these; in the order of their questions."""

    async def look() -> list[Ticket] | None:
        if not isinstance((await run.now()).state, Waiting):
            return None
        found = [each for each in await run.tickets() if each.status is TicketStatus.OPEN]
        found.sort(key=lambda ticket: ticket.message)
        return found if [each.message for each in found] == sorted(questions) else None

    return await eventually(look)


async def statuses_of(run: Run) -> dict[str, TicketStatus]:
    return {each.message: each.status for each in await run.tickets()}


async def tickets_there(there: HoldfastRemote) -> list[dict[str, Any]]:
    async with there.server.client() as client:
        page = await client.get("/v1/tickets", status="open")
    known = {run["run_id"] for run in await there.runs()}
    return [each for each in page["items"] if each["run_id"] in known]


async def answer_there(there: HoldfastRemote, question: str, result: str) -> None:
    [ticket] = [each for each in await tickets_there(there) if each["message"] == question]
    given = {"ticket_id": ticket["ticket_id"], "action": "respond", "result": result}
    async with there.server.client() as client:
        await client.post(f"/v1/runs/{ticket['run_id']}/decisions", {"decisions": [given]})


@pytest.mark.parametrize(
    "words", ["give far ask which one?", "give lead give far ask which one?"], ids=["child", "deep"]
)
async def test_what_is_asked_below_a_remote_is_asked_and_answered_here(
    database_url: str, there: HoldfastRemote, words: str
) -> None:
    async with house(database_url, there) as here:
        run = await here.start(words)
        [ticket] = await asked(run, "which one?")
        [original] = await tickets_there(there)
        assert ticket.name == f"remote:{original['run_id']}:{original['ticket_id']}"
        assert (ticket.tool_name, ticket.arguments) == ("ask_person", original["arguments"])
        assert sorted(ticket.allowed_actions) == original["allowed_actions"]
        await run.decide(ticket.name, "respond", result="the red one")
        said = await run.ended()
    assert "the red one" in said[-1]["result"]["response"]
    assert len(of_type(said, "ticket_opened")) == 1


async def test_all_that_are_asked_at_once_are_relayed_and_go_on_by_themselves(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there) as here:
        run = await here.start("give far ask A? & lead give far ask B? & far say hello")
        first, second = await asked(run, "A?", "B?")
        await run.decide(second.name, "respond", result="to B")
        await asked(run, "A?")
        await run.decide(first.name, "respond", result="to A")
        said = await run.ended()
    assert all(each in said[-1]["result"]["response"] for each in ("to A", "to B", "hello"))
    assert set((await statuses_of(run)).values()) == {TicketStatus.DECIDED}


async def test_what_somebody_answers_there_is_void_here_and_the_run_goes_on(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there) as here:
        run = await here.start("give far ask A? & far ask B?")
        await asked(run, "A?", "B?")
        await answer_there(there, "A?", "given there")
        [ticket] = await asked(run, "B?")
        assert (await statuses_of(run))["A?"] is TicketStatus.VOID
        await run.decide(ticket.name, "respond", result="given here")
        said = await run.ended()
    assert all(each in said[-1]["result"]["response"] for each in ("given there", "given here"))
    assert len(of_type(said, "ticket_void")) == 1


async def test_a_run_whose_only_question_is_answered_there_ends_here(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there, "far") as here:
        run = await here.start("ask which one?")
        await asked(run, "which one?")
        await answer_there(there, "which one?", "the blue one")
        said = await run.ended()
    assert said[-1]["result"]["response"].strip() == "you answered: the blue one"
    assert list((await statuses_of(run)).values()) == [TicketStatus.VOID]


async def test_a_remote_whose_children_work_by_themselves_is_waited_for_without_a_ticket(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there) as here:
        run = await here.start("give far hang & far say hello")
        await there.hanging()

        async def waits_there() -> bool:
            return any(each["status"] == "waiting" for each in await there.runs())

        await eventually(waits_there)
        assert isinstance((await run.now()).state, Running)
        await there.release()
        said = await run.ended()
    assert "still here" in said[-1]["result"]["response"]
    assert not of_type(said, "ticket_opened")


async def test_whoever_takes_over_relays_what_is_asked_below(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there) as first, house(database_url, there) as second:
        run = await first.start("give far hang & far ask which one?")
        await there.hanging()
        await asked(run, "which one?")
        await first.kill()
        run = second.same(run)
        [ticket] = await asked(run, "which one?")
        await run.decide(ticket.name, "respond", result="the red one")
        await there.release()
        said = await run.ended()
    assert "the red one" in said[-1]["result"]["response"]
    assert len(of_type(said, "ticket_opened")) == 1
    assert len(await there.runs()) == 3


async def test_a_worker_lost_while_children_work_there_loses_none_of_their_questions(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there) as first, house(database_url, there) as second:
        run = await first.start("give lead give far hang")
        await there.hanging()
        await first.kill()
        run = second.same(run)
        await there.release()
        said = await run.ended()
    assert "still here" in said[-1]["result"]["response"]
    assert types_of(said).count("run_start") == 1
    assert len(await there.runs()) == 3


async def test_a_cancel_here_ends_all_below_that_asks(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there) as here:
        run = await here.start("give lead give far ask which one?")
        await asked(run, "which one?")
        await run.cancel("never mind")
        state = (await run.now()).state
        assert isinstance(state, Done)
        assert state.termination == Cancelled("never mind")

        async def all_over() -> bool:
            return {each["outcome"] for each in await there.runs()} == {"cancelled"}

        await eventually(all_over)


async def test_a_question_that_nobody_answers_in_time_here_is_denied_there(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there, "far") as here:
        run = await here.start("ask which one?")
        await asked(run, "which one?")
        await here.database.pool.execute(
            "UPDATE tickets SET expires_at = now(), on_expiry = 'reject' WHERE status = 'open'"
        )
        said = await run.ended()
        assert not await tickets_there(there)
    assert EXPIRED in said[-1]["result"]["response"]
    assert len(of_type(said, "ticket_opened")) == 1


async def test_an_answer_may_be_null_or_a_word_that_drops_the_call(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there) as here:
        run = await here.start("give far ask A? & far ask B?")
        first, second = await asked(run, "A?", "B?")
        await run.decide_all(
            decision(first.name, "respond", result=None),
            decision(second.name, "cancel", reason="not now"),
        )
        said = await run.ended()
    assert "null" in said[-1]["result"]["response"]
    assert "not now" in said[-1]["result"]["response"]


async def test_a_run_there_can_be_stopped_by_the_name_of_its_turn_alone(
    database_url: str, there: HoldfastRemote
) -> None:
    async with house(database_url, there, "far") as here:
        run = await here.start("hang")
        await there.hanging()
        endpoint = here.catalog.agents[run.record.agent_id].endpoint
        assert endpoint is not None
        for key in (turn_key(run.id, 0), turn_key(run.id, 7)):
            unheard = Abort(
                agent_id=run.record.agent_id,
                run_id=run.id,
                thread_id=run.thread_id,
                key=key,
                binding=None,
            )
            await there.backends.of(endpoint).abort(unheard)
        await run.ended()
    assert await there.aborts() == 1
