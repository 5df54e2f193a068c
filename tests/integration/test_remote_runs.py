"""Runs whose agent is executed elsewhere: the same events, checkpoints and endings as local ones."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.backends.remote import turn as remote_turn
from app.backends.remote.run import accepted_turn
from app.clock import new_id
from app.commands.files.upload import upload
from app.commands.files.writing import NewFile
from app.commands.inputs.send import InputMode, InputRequest, ToRun, send_input
from app.domain.agents.backend_results import OUTPUT_KEY
from app.domain.errors import Invalid
from app.domain.ids import MessageId
from app.domain.inference.options import InferenceOptions
from app.domain.json_values import JsonObject
from app.domain.runs.runs import Created, Done, Waiting, WaitingReason
from app.domain.runs.terminations import Cancelled, Failed, NaturalEnd, Stopped, Termination
from app.domain.threads.messages import (
    Base64Source,
    FileSource,
    Media,
    Message,
    Role,
    Text,
)
from app.domain.tickets.tickets import TicketKind, TicketStatus
from app.llm.scripted.model import in_order
from app.runtime.inference.media_files import with_bytes
from app.runtime.ports.files import NO_FILES
from app.storage.queue import deliveries
from app.storage.runs.runs import RunKey
from tests.support.conditions import eventually
from tests.support.echo_backend import Echo
from tests.support.replicas import ANN, Replica, Run, of_type, open_replica, texts_of, types_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def replica(url: str, echo: Echo) -> AsyncIterator[Replica]:
    async with open_replica(url, echo.catalog, in_order(), backends=echo.backends) as opened:
        yield opened


@asynccontextmanager
async def remote_run(url: str, words: str, echo: Echo | None = None) -> AsyncIterator[Run]:
    """A run of the remote agent, after its first activation."""
    async with replica(url, echo or Echo()) as opened:
        run = await opened.start(words)
        await run.finished()
        yield run


async def _end_of(run: Run) -> Termination:
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.termination


async def test_a_remote_run_emits_the_events_of_a_local_one(database_url: str) -> None:
    async with replica(database_url, Echo()) as local_replica:
        run = await local_replica.start("say hello from afar")
        emitted = await run.finished()
        assert types_of(emitted) == [
            "run_created",
            "run_start",
            "step_start",
            "text_delta",
            "inference_complete",
            "message_done",
            "state_snapshot",
            "step_end",
            "state_snapshot",
            "run_finish",
        ]
        assert of_type(emitted, "text_delta")[0]["delta"] == "hello from afar "
        assert emitted[-1]["result"] == {
            "response": "hello from afar ",
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
    "words, termination, outcome",
    [
        ("fail no paper", Failed("remote_failed", "no paper"), "failed"),
        ("cancelled", Cancelled("cancelled by the remote agent"), "cancelled"),
        ("slow", Stopped("timeout", "the remote agent took too long"), "budget_exceeded"),
        ("die no route", Failed("remote_unreachable", "no route"), "failed"),
    ],
)
async def test_each_end_of_the_remote_ends_the_run(
    database_url: str, words: str, termination: Termination, outcome: str
) -> None:
    async with replica(database_url, Echo()) as local_replica:
        run = await local_replica.start(words)
        emitted = await run.finished()
        assert (emitted[-1]["status"], emitted[-1]["outcome"]) == ("done", outcome)
        assert await _end_of(run) == termination


@pytest.mark.parametrize(
    "words, kind, reason",
    [
        ("ask which one?", TicketKind.INPUT, WaitingReason.USER_INPUT),
        ("login at the door", TicketKind.AUTH, WaitingReason.TOOL_PERMISSION),
    ],
)
async def test_a_question_of_the_remote_becomes_a_ticket_and_the_answer_its_next_turn(
    database_url: str, words: str, kind: TicketKind, reason: WaitingReason
) -> None:
    echo = Echo()
    async with replica(database_url, echo) as local_replica:
        run = await local_replica.start(words)
        emitted = await run.finished()
        assert emitted[-1]["termination"] == {"type": "suspended"}
        state = (await run.now()).state
        assert isinstance(state, Waiting)
        assert state.reason is reason
        [ticket] = await run.tickets()
        assert ticket.kind is kind
        await run.decide(ticket.name, "respond", result="the red one")
        emitted = await run.ended()
        assert emitted[-1]["result"]["response"] == "you answered: the red one"
        assert echo.turns[-1].is_continuation
        assert echo.turns[-1].binding == {"task": echo.turns[0].key}
        assert [ticket.applied_at is not None for ticket in await run.tickets()] == [True]


async def test_a_remote_turn_that_was_answered_elsewhere_is_joined(
    database_url: str,
) -> None:
    echo = Echo()
    async with remote_run(database_url, "ask which one?", echo) as run:
        echo.was_answered = True
        emitted = await run.ended()
        [ticket] = await run.tickets()
    assert ticket.status is TicketStatus.VOID
    assert [event["ticket_id"] for event in of_type(emitted, "ticket_void")] == [ticket.id]
    assert [(turn.joins, len(turn.new_messages)) for turn in echo.turns] == [(False, 1), (True, 0)]


async def test_a_delivery_without_a_reason_suspends_the_run_again(database_url: str) -> None:
    echo = Echo()
    async with remote_run(database_url, "ask which one?", echo) as run:
        record = await run.now()
        async with run.replica.database.transaction() as connection:
            key = RunKey(record.tenant, record.thread_id, record.id, record.attempt)
            await deliveries.enqueue(connection, key)
        await run.finished(2)
        assert isinstance((await run.now()).state, Waiting)
        [ticket] = await run.tickets()
        assert ticket.status is TicketStatus.OPEN
    assert len(echo.turns) == 1


async def test_artifacts_are_stored_in_the_state_of_the_run(database_url: str) -> None:
    async with remote_run(database_url, "make a draft") as run:
        output = ((await run.now()).run_state or {})["extensions"][OUTPUT_KEY]
        [made] = output["artifacts"]
        assert made.pop("file_id")
        assert made == {
            "id": "a1",
            "name": "draft",
            "media_type": "text/plain",
            "content": "a draft",
        }


async def test_equal_artifacts_of_two_turns_are_one_file_of_each_thread(database_url: str) -> None:
    async with replica(database_url, Echo()) as local_replica:
        for _ in range(2):
            await (await local_replica.start("make a draft")).ended()
        counts = "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM file_threads)"
        rows = await local_replica.database.pool.fetch(counts)
        assert [tuple(row) for row in rows] == [(1, 2)]


@pytest.mark.parametrize("abort_fails", [False, True])
async def test_a_cancel_aborts_the_remote_turn_and_succeeds_even_if_that_fails(
    database_url: str, abort_fails: bool
) -> None:
    echo = Echo(abort_fails=abort_fails)
    async with replica(database_url, echo) as local_replica:
        run = await local_replica.start("hang")
        await echo.hanging.wait()
        await run.cancel("enough")
        await run.finished()
        assert await _end_of(run) == Cancelled("enough")
        assert await aborts(echo) == [(f"{run.id}:1", {"task": f"{run.id}:1"})]


@pytest.mark.parametrize(
    "words, code", [("break", "internal_error"), ("lose the way", "remote_unreachable")]
)
async def test_a_run_that_fails_before_its_remote_turn_ends_aborts_it(
    database_url: str, words: str, code: str
) -> None:
    echo = Echo()
    async with remote_run(database_url, words, echo) as run:
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == code
        assert await aborts(echo) == [(f"{run.id}:1", {"task": f"{run.id}:1"})]


async def test_a_turn_without_an_acknowledgement_is_aborted(
    database_url: str,
) -> None:
    echo = Echo()
    async with replica(database_url, echo) as local_replica:
        first = await local_replica.start("say hello")
        await first.finished()
        run = await local_replica.start("hang unheard", thread_id=first.thread_id)
        await echo.hanging.wait()
        await run.cancel("enough")
        await run.finished()
        assert await _end_of(run) == Cancelled("enough")
        assert await aborts(echo) == [(f"{run.id}:1", None)]


async def aborts(echo: Echo) -> list[tuple[str, JsonObject | None]]:
    """The aborts that the remote received, once there is one."""
    return await eventually(lambda: _aborts_of(echo))


async def _aborts_of(echo: Echo) -> list[tuple[str, JsonObject | None]]:
    return [(abort.key, abort.binding) for abort in echo.aborts]


@pytest.mark.parametrize("words", ["say one two three four five", "one two three four five"])
async def test_a_remote_that_streams_without_end_is_stopped_at_a_bound(
    database_url: str, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(remote_turn, "MAX_STREAMED_CHARACTERS", 20)
    echo = Echo()
    async with remote_run(database_url, words, echo) as run:
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_too_long"
        assert await aborts(echo) == [(f"{run.id}:1", {"task": f"{run.id}:1"})]


async def test_the_last_saved_state_is_kept_when_the_remote_disconnects(database_url: str) -> None:
    async with remote_run(database_url, "die no route") as run:
        record = await run.now()
        accepted = accepted_turn(record)
        assert accepted is not None
        assert accepted.key == f"{run.id}:1"
        assert accepted.binding == {"task": f"{run.id}:1"}


async def test_a_worker_that_takes_over_joins_the_accepted_turn(database_url: str) -> None:
    echo = Echo()
    async with replica(database_url, echo) as first, replica(database_url, echo) as second:
        run = await first.start("hang")
        await echo.hanging.wait()
        await first.kill()
        echo.released.set()
        emitted = await second.same(run).finished()
        assert emitted[-1]["result"]["response"] == "still here"
        assert [turn.joins for turn in echo.turns] == [False, True]
        assert len({turn.key for turn in echo.turns}) == 1
        assert len(of_type(emitted, "run_start")) == 1


async def steer(run: Run, text: str) -> None:
    message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),))
    request = InputRequest(messages=(message,), mode=InputMode.STEER)
    await send_input(run.replica.ctx, ANN, ToRun(run.id), request, deliver=True)


def texts_per_turn(echo: Echo) -> list[list[str]]:
    return [[each.text for each in turn.new_messages] for turn in echo.turns]


async def test_a_message_that_comes_while_the_remote_waits_reaches_it_once(
    database_url: str,
) -> None:
    echo = Echo()
    async with remote_run(database_url, "ask which one?", echo) as run:
        await steer(run, "hurry")
        [ticket] = await run.tickets()
        await run.decide(ticket.name, "respond", result="the red one")
        await run.ended()
    assert texts_per_turn(echo) == [["ask which one?"], ["the red one", "hurry"]]
    assert [each.text for each in echo.turns[1].messages_besides_answers] == ["hurry"]


async def test_an_answer_isnt_sent_again_with_the_turn_after_it(database_url: str) -> None:
    echo = Echo()
    async with remote_run(database_url, "ask which one?", echo) as run:
        [ticket] = await run.tickets()
        await run.decide(ticket.name, "respond", result="hang")
        await echo.hanging.wait()
        await steer(run, "hurry")
        echo.released.set()
        await run.ended()
    assert texts_per_turn(echo) == [["ask which one?"], ["hang"], ["hurry"]]


async def test_a_message_that_comes_before_a_takeover_reaches_the_remote_with_the_next_turn(
    database_url: str,
) -> None:
    echo = Echo()
    async with replica(database_url, echo) as first, replica(database_url, echo) as second:
        run = await first.start("hang")
        await echo.hanging.wait()
        await steer(run, "hurry")
        await first.kill()
        echo.released.set()
        emitted = await second.same(run).ended()
        assert emitted[-1]["result"]["response"] == "you said: hurry"
    assert [turn.joins for turn in echo.turns] == [False, True, False]
    assert texts_per_turn(echo) == [["hang"], [], ["hurry"]]


async def test_a_message_and_an_answer_before_a_takeover_are_each_sent_once(
    database_url: str,
) -> None:
    echo = Echo()
    async with replica(database_url, echo) as first, replica(database_url, echo) as second:
        run = await first.start("ask which one?")
        await run.finished()
        [ticket] = await run.tickets()
        await run.decide(ticket.name, "respond", result="hang")
        await echo.hanging.wait()
        await steer(run, "hurry")
        await first.kill()
        echo.released.set()
        run = second.same(run)
        await run.ended()
        sent = [text for role, text in texts_of(await run.log()) if role == "user"]
    assert [turn.joins for turn in echo.turns] == [False, False, True, False]
    assert texts_per_turn(echo) == [["ask which one?"], ["hang"], [], ["hurry"]]
    assert sorted(sent) == ["ask which one?", "hang", "hurry"]


async def test_a_message_to_a_run_whose_question_is_answered_elsewhere_is_sent_after_it(
    database_url: str,
) -> None:
    echo = Echo()
    async with remote_run(database_url, "ask which one?", echo) as run:
        await steer(run, "hurry")
        echo.was_answered = True
        await run.ended()
    assert texts_per_turn(echo) == [["ask which one?"], [], ["hurry"]]


async def test_a_run_that_a_remote_executes_is_paused_only_while_it_waits(
    database_url: str,
) -> None:
    echo = Echo()
    async with replica(database_url, echo) as local_replica:
        run = await local_replica.start("hang")
        await echo.hanging.wait()
        with pytest.raises(Invalid) as refused:
            await run.pause()
        assert refused.value.code == "backend_unsupported"
        assert refused.value.facts == {"features": ["pause"]}
        assert (await run.now()).pause is None
        behind = await local_replica.start("say hello", thread_id=run.thread_id)
        assert (await behind.pause()).is_paused
        echo.released.set()
        await run.ended()
        assert (await behind.now()).state == Created(admitted=True)
        await behind.resume()
        assert await _end_of_when_done(behind) == NaturalEnd()


async def _end_of_when_done(run: Run) -> Termination:
    await run.ended()
    return await _end_of(run)


async def test_a_start_beyond_the_backends_capabilities_is_refused_without_a_row(
    database_url: str,
) -> None:
    async with replica(database_url, Echo()) as local_replica:
        with pytest.raises(Invalid) as refused:
            await local_replica.start("say hello", overrides=InferenceOptions(temperature=0.1))
        assert refused.value.code == "backend_unsupported"
        assert refused.value.facts == {"features": ["overrides"]}
        assert "agent 'remote' backend does not support: overrides" in refused.value.detail
        assert await local_replica.database.pool.fetchval("SELECT count(*) FROM threads") == 0


async def test_a_remote_agent_gets_the_bytes_of_files(database_url: str) -> None:
    """A file that can't be read becomes a text that says so."""
    echo = Echo()

    async def bytes_of_file() -> AsyncIterator[bytes]:
        yield b"hello"

    async with replica(database_url, echo) as here:
        new = NewFile("a.txt", "text/plain")
        file = await upload(here.ctx, ANN, new, bytes_of_file())
        run = await here.start("say first")
        await run.finished()
        content = (Text("say it"), Media("document", FileSource(file.id)))
        message = Message(id=MessageId(new_id()), role=Role.USER, content=content)
        request = InputRequest(messages=(message,), mode=InputMode.QUEUE)
        sent = await send_input(here.ctx, ANN, ToRun(run.id), request, deliver=True)
        await Run(here, sent.run).finished()
        [received] = echo.turns[-1].new_messages
        data = base64.b64encode(b"hello").decode()
        assert received.content[1:] == (
            Media("document", Base64Source("text/plain", data), "a.txt"),
        )
        assert [type(block) for block in (await with_bytes(NO_FILES, [message]))[0].content] == [
            Text,
            Text,
        ]
