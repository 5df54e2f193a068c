"""What must hold for every backend: runs behave the same wherever the agent executes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.clock import new_id
from app.commands.inputs.send import InputMode, InputRequest, ToRun, send_input
from app.domain.ids import MessageId
from app.domain.runs.runs import Done, Waiting
from app.domain.runs.terminations import Cancelled, Failed, NaturalEnd, Termination
from app.domain.threads.messages import Message, Role, Text, TruncationReason
from tests.support.conditions import eventually
from tests.support.remotes import Remote, Remotes, remote
from tests.support.replicas import ANN, Replica, Run, of_type, open_replica, texts_of, types_of

pytestmark = pytest.mark.anyio

REMOTE = ["echo", "a2a", "a2a, polled", "holdfast"]
every_kind = pytest.mark.parametrize("kind", ["local", *REMOTE])
every_remote_kind = pytest.mark.parametrize("kind", REMOTE)


@pytest.fixture
async def there(kind: str, remotes: Remotes) -> AsyncIterator[Remote]:
    async with remote(kind, remotes) as opened:
        yield opened


@asynccontextmanager
async def replica(url: str, there: Remote) -> AsyncIterator[Replica]:
    async with open_replica(url, there.catalog, there.script, backends=there.backends) as opened:
        yield opened


async def _end_of(run: Run) -> Termination:
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.termination


@every_kind
async def test_the_answer_is_streamed_and_stored(database_url: str, there: Remote) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("say hello from afar")
        emitted = await run.finished()
        received = "".join(event["delta"] for event in of_type(emitted, "text_delta"))
        assert received.strip() == "hello from afar"
        assert emitted[-1]["result"]["response"].strip() == "hello from afar"
        assert [text.strip() for _, text in texts_of(await run.log())] == [
            "say hello from afar",
            "hello from afar",
        ]
        assert await _end_of(run) == NaturalEnd()
        assert types_of(emitted).count("step_end") == 1


@every_kind
async def test_a_failed_turn_fails_the_run(database_url: str, there: Remote) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("fail no paper")
        emitted = await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert "no paper" in end.detail
        assert emitted[-1]["termination"]["type"] == "error"


@every_kind
@pytest.mark.parametrize("prompt", ["ask which one?", "login at the door"])
async def test_a_question_opens_a_ticket_and_its_answer_reaches_the_agent(
    database_url: str, there: Remote, prompt: str
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start(prompt)
        await run.finished()
        assert isinstance((await run.now()).state, Waiting)
        [ticket] = await run.tickets()
        assert prompt.partition(" ")[2] in ticket.message
        await run.decide(ticket.name, "respond", result="the red one")
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"].strip() == "you answered: the red one"
        assert [each.applied_at is not None for each in await run.tickets()] == [True]


@every_kind
async def test_a_question_survives_the_loss_of_the_worker(database_url: str, there: Remote) -> None:
    async with replica(database_url, there) as first:
        run = await first.start("ask which one?")
        await run.finished()
    async with replica(database_url, there) as second:
        run = second.same(run)
        [ticket] = await run.tickets()
        await run.decide(ticket.name, "respond", result="the red one")
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"].strip() == "you answered: the red one"


@every_remote_kind
async def test_a_message_that_answers_a_question_is_sent_and_logged_once(
    database_url: str, there: Remote
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("ask which one?")
        await run.finished()
        message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text("the red one"),))
        request = InputRequest(messages=(message,), mode=InputMode.RESUME_OPEN_RUN)
        await send_input(here.ctx, ANN, ToRun(run.id), request, deliver=True)
        emitted = await run.ended()
        log = await run.log()
    assert emitted[-1]["result"]["response"].strip() == "you answered: the red one"
    assert [text for role, text in texts_of(log) if role == "user"] == [
        "ask which one?",
        "the red one",
    ]
    assert message.id in {entry.message.id for entry in log}


@every_kind
async def test_text_streamed_before_a_cancel_is_in_the_log(
    database_url: str, there: Remote
) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("hang")
        await there.hanging()
        await run.until("text_delta")
        await run.cancel("enough")
        emitted = await run.finished()
        last = (await run.log())[-1].message
        record = await run.now()
    received = "".join(event["delta"] for event in of_type(emitted, "text_delta"))
    assert received.strip() == "still"
    assert of_type(emitted, "stream_reset") == []
    assert (last.role, last.text, last.cut_short) == (
        Role.ASSISTANT,
        received,
        TruncationReason.CANCELLED,
    )
    assert record.output.message_ids == (last.id,)
    assert emitted[-1]["result"]["response"] == received


@every_kind
async def test_a_cancel_reaches_the_agent(database_url: str, there: Remote) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("hang")
        await there.hanging()
        await run.cancel("enough")
        await run.finished()
        assert await _end_of(run) == Cancelled("enough")
        await eventually(lambda: was_aborted(there))


@every_remote_kind
async def test_an_open_turn_is_rejoined_after_a_takeover(database_url: str, there: Remote) -> None:
    async with replica(database_url, there) as first, replica(database_url, there) as second:
        run = await first.start("hang")
        await there.hanging()
        await run.until("text_delta")
        await first.kill()
        await there.release()
        emitted = await second.same(run).ended()
        assert emitted[-1]["result"]["response"] == "still here"
        assert await there.turns() == 1
        assert types_of(emitted).count("run_start") == 1


@every_remote_kind
async def test_an_open_turn_is_handed_over_when_the_worker_stops(
    database_url: str, there: Remote
) -> None:
    async with replica(database_url, there) as second:
        async with replica(database_url, there) as first:
            run = await first.start("hang")
            await there.hanging()
            await run.until("text_delta")
        await there.release()
        emitted = await second.same(run).ended()
        assert emitted[-1]["result"]["response"] == "still here"
        assert await there.turns() == 1


@every_remote_kind
async def test_a_second_run_on_the_thread_is_the_next_turn(
    database_url: str, there: Remote
) -> None:
    async with replica(database_url, there) as here:
        first = await here.start("say one")
        await first.finished()
        second = await here.start("say two", thread_id=first.thread_id)
        emitted = await second.finished()
        assert emitted[-1]["result"]["response"].strip() == "two"
        assert await there.turns() == 2


@every_remote_kind
async def test_cancelling_a_waiting_run_aborts_the_agent(database_url: str, there: Remote) -> None:
    async with replica(database_url, there) as here:
        run = await here.start("ask which one?")
        await run.finished()
        answer = await run.cancel("never mind")
        assert answer.is_done
        assert await _end_of(run) == Cancelled("never mind")
        await eventually(lambda: was_aborted(there))


async def was_aborted(there: Remote) -> bool:
    return await there.aborts() == 1
