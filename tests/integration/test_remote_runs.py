"""Runs whose agent is executed elsewhere: the same events, checkpoints and endings as local ones."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.backends.remote import turn as remote_turn
from app.backends.remote.run import accepted_turn
from app.domain.agents.backend_results import OUTPUT_KEY
from app.domain.errors import Invalid
from app.domain.inference.options import InferenceOptions
from app.domain.json_values import JsonObject
from app.domain.runs.runs import Created, Done, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, Failed, NaturalEnd, Stopped, Termination
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.llm.scripted.model import in_order
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey
from tests.support.conditions import eventually
from tests.support.echo_backend import Echo
from tests.support.house import Replica, Run, of_type, replica, texts_of, types_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def house(url: str, echo: Echo) -> AsyncIterator[Replica]:
    async with replica(url, echo.catalog, in_order(), backends=echo.backends) as opened:
        yield opened


async def _end_of(run: Run) -> Termination:
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.termination


async def test_a_remote_run_says_what_a_local_one_says(database_url: str) -> None:
    async with house(database_url, Echo()) as there:
        run = await there.start("say hello from afar")
        said = await run.finished()
        assert types_of(said) == [
            "run_created",
            "run_start",
            "step_start",
            "text_delta",
            "inference_complete",
            "state_snapshot",
            "step_end",
            "state_snapshot",
            "run_finish",
        ]
        assert of_type(said, "text_delta")[0]["delta"] == "hello from afar "
        assert said[-1]["result"] == {
            "response": "hello from afar ",
            "status": "done",
            "status_reason": "natural",
            "output": {"text": "hello from afar "},
        }
        assert texts_of(await run.log()) == [
            ("user", "say hello from afar"),
            ("assistant", "hello from afar "),
        ]
        assert await _end_of(run) == NaturalEnd()
        record = await run.now()
        assert record.steps == 1
        assert record.output.range is not None


@pytest.mark.parametrize(
    "words, termination, label",
    [
        ("fail no paper", Failed("remote_failed", "no paper"), "failed"),
        ("cancelled", Cancelled("cancelled by the remote agent"), "cancelled"),
        ("slow", Stopped("timeout", "the remote agent took too long"), "timeout"),
        ("die no route", Failed("remote_unreachable", "no route"), "failed"),
    ],
)
async def test_each_end_of_the_remote_is_an_end_here(
    database_url: str, words: str, termination: Termination, label: str
) -> None:
    async with house(database_url, Echo()) as there:
        run = await there.start(words)
        said = await run.finished()
        assert said[-1]["result"]["status"] == label
        assert await _end_of(run) == termination


@pytest.mark.parametrize(
    "words, kind, reason",
    [
        ("ask which one?", TicketKind.INPUT, WaitingReason.USER_INPUT),
        ("login at the door", TicketKind.AUTH, WaitingReason.TOOL_PERMISSION),
    ],
)
async def test_what_the_remote_waits_for_is_a_ticket_and_the_answer_its_next_turn(
    database_url: str, words: str, kind: TicketKind, reason: WaitingReason
) -> None:
    echo = Echo()
    async with house(database_url, echo) as there:
        run = await there.start(words)
        said = await run.finished()
        assert said[-1]["termination"] == {"type": "suspended"}
        state = (await run.now()).state
        assert isinstance(state, Waiting)
        assert state.reason is reason
        [ticket] = await run.tickets()
        assert ticket.kind is kind
        await run.decide(ticket.name, "respond", result="the red one")
        said = await run.ended()
        assert said[-1]["result"]["response"] == "you answered: the red one"
        assert echo.turns[-1].is_continuation
        assert echo.turns[-1].binding == {"task": echo.turns[0].key}
        assert [ticket.applied_at is not None for ticket in await run.tickets()] == [True]


async def test_a_remote_that_was_answered_elsewhere_is_joined_where_it_is(
    database_url: str,
) -> None:
    echo = Echo()
    async with house(database_url, echo) as there:
        run = await there.start("ask which one?")
        await run.finished()
        echo.was_answered = True
        said = await run.ended()
        [ticket] = await run.tickets()
    assert ticket.status is TicketStatus.VOID
    assert [event["id"] for event in of_type(said, "ticket_void")] == [ticket.id]
    assert [(turn.joins, len(turn.new_messages)) for turn in echo.turns] == [(False, 1), (True, 0)]


async def test_a_run_that_is_woken_for_nothing_goes_back_to_rest(database_url: str) -> None:
    echo = Echo()
    async with house(database_url, echo) as there:
        run = await there.start("ask which one?")
        await run.finished()
        record = await run.now()
        async with there.database.transaction() as connection:
            key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
            await deliveries.enqueue(connection, key)
        await run.finished(2)
        assert isinstance((await run.now()).state, Waiting)
        [ticket] = await run.tickets()
        assert ticket.status is TicketStatus.OPEN
    assert len(echo.turns) == 1


async def test_artifacts_are_kept_in_the_state_of_the_run(database_url: str) -> None:
    async with house(database_url, Echo()) as there:
        run = await there.start("make a draft")
        await run.finished()
        kept = ((await run.now()).run_state or {})["extensions"][OUTPUT_KEY]
        assert kept["artifacts"] == [
            {"id": "a1", "name": "draft", "media_type": "text/plain", "content": "a draft"}
        ]


@pytest.mark.parametrize("abort_fails", [False, True])
async def test_a_cancel_aborts_at_the_remote_and_doesnt_depend_on_it(
    database_url: str, abort_fails: bool
) -> None:
    echo = Echo(abort_fails=abort_fails)
    async with house(database_url, echo) as there:
        run = await there.start("hang")
        await echo.hanging.wait()
        await run.cancel("enough")
        await run.finished()
        assert await _end_of(run) == Cancelled("enough")
        assert await aborted(echo) == [(f"{run.id}:1", {"task": f"{run.id}:1"})]


@pytest.mark.parametrize(
    "words, code", [("break", "internal_error"), ("lose the way", "remote_unreachable")]
)
async def test_a_run_that_ends_without_its_remote_tells_it(
    database_url: str, words: str, code: str
) -> None:
    echo = Echo()
    async with house(database_url, echo) as there:
        run = await there.start(words)
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == code
        assert await aborted(echo) == [(f"{run.id}:1", {"task": f"{run.id}:1"})]


async def test_a_turn_that_may_have_got_there_is_told_to_stop_though_nobody_heard_so(
    database_url: str,
) -> None:
    echo = Echo()
    async with house(database_url, echo) as there:
        first = await there.start("say hello")
        await first.finished()
        run = await there.start("hang unheard", thread_id=first.thread_id)
        await echo.hanging.wait()
        await run.cancel("enough")
        await run.finished()
        assert await _end_of(run) == Cancelled("enough")
        assert await aborted(echo) == [(f"{run.id}:1", None)]


async def aborted(echo: Echo) -> list[tuple[str, JsonObject | None]]:
    """What the remote was told to stop, once it was told anything."""
    return await eventually(lambda: _aborts_of(echo))


async def _aborts_of(echo: Echo) -> list[tuple[str, JsonObject | None]]:
    return [(abort.key, abort.binding) for abort in echo.aborts]


@pytest.mark.parametrize("words", ["say one two three four five", "one two three four five"])
async def test_a_remote_that_never_stops_talking_is_stopped(
    database_url: str, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(remote_turn, "MAX_STREAMED_CHARACTERS", 20)
    echo = Echo()
    async with house(database_url, echo) as there:
        run = await there.start(words)
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_too_long"
        assert await aborted(echo) == [(f"{run.id}:1", {"task": f"{run.id}:1"})]


async def test_what_was_saved_last_stays_when_the_remote_breaks_off(database_url: str) -> None:
    async with house(database_url, Echo()) as there:
        run = await there.start("die no route")
        await run.finished()
        record = await run.now()
        accepted = accepted_turn(record)
        assert accepted is not None
        assert accepted.key == f"{run.id}:1"
        assert accepted.binding == {"task": f"{run.id}:1"}


async def test_whoever_takes_over_joins_the_turn_that_was_accepted(database_url: str) -> None:
    echo = Echo()
    async with house(database_url, echo) as first, house(database_url, echo) as second:
        run = await first.start("hang")
        await echo.hanging.wait()
        await first.kill()
        echo.released.set()
        said = await second.same(run).finished()
        assert said[-1]["result"]["response"] == "still here"
        assert [turn.joins for turn in echo.turns] == [False, True]
        assert len({turn.key for turn in echo.turns}) == 1
        assert len(of_type(said, "run_start")) == 1


async def test_a_run_that_a_remote_executes_is_paused_only_while_it_waits(
    database_url: str,
) -> None:
    echo = Echo()
    async with house(database_url, echo) as there:
        run = await there.start("hang")
        await echo.hanging.wait()
        with pytest.raises(Invalid) as refused:
            await run.pause()
        assert refused.value.code == "backend_unsupported"
        assert refused.value.facts == {"features": ["pause"]}
        assert (await run.now()).pause is None
        behind = await there.start("say hello", thread_id=run.thread_id)
        assert (await behind.pause()).is_settled
        echo.released.set()
        await run.ended()
        assert (await behind.now()).state == Created(admitted=True)
        await behind.resume()
        assert await _end_of_when_done(behind) == NaturalEnd()


async def _end_of_when_done(run: Run) -> Termination:
    await run.ended()
    return await _end_of(run)


async def test_what_a_backend_lacks_is_refused_before_anything_is_written(
    database_url: str,
) -> None:
    async with house(database_url, Echo()) as there:
        with pytest.raises(Invalid) as refused:
            await there.start("say hello", overrides=InferenceOptions(temperature=0.1))
        assert refused.value.code == "backend_unsupported"
        assert refused.value.facts == {"features": ["overrides"]}
        assert "agent 'remote' backend does not support: overrides" in refused.value.detail
        assert await there.database.pool.fetchval("SELECT count(*) FROM threads") == 0
