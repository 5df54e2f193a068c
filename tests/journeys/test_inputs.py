"""The journey of somebody who has more to say while a run goes on, through two servers."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.conditions import Effects
from tests.support.conversations import said, texts
from tests.support.problems import the_problem
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio


# --- steer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_a_run_hears_of_more_before_its_next_step(
    both: tuple[Client, Client], tmp_path: Path, by: str
) -> None:
    here, there = both
    effects = Effects(tmp_path / "effects")
    run = await here.start("quick", effects.held("look"))
    await effects.happened()
    path = f"/v1/runs/{run['run_id']}/inputs"
    if by == "thread":
        path = f"/v1/threads/{run['thread_id']}/messages"
    told = await there.post(path, said("and this"), 202)
    assert (told["run_id"], told["status"]) == (run["run_id"], "running")
    effects.release()
    assert (await there.settled(run["run_id"]))["outcome"] == "succeeded"
    log = await here.log(f"/v1/runs/{run['run_id']}")
    [queued] = [event for event in log if event["event_type"] == "input_queued"]
    assert [queued["input_id"]] == told["input_ids"]
    assert [role for role, _ in await texts(here, run["thread_id"])] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


async def test_no_end_overlooks_what_was_accepted(both: tuple[Client, Client]) -> None:
    """Whatever is said to a run just about to end is answered by it, or refused."""

    async def race(n: int) -> int:
        run = await both[n % 2].start("quick", "hello")
        path = f"/v1/runs/{run['run_id']}/inputs"
        sent = [
            await both[(n + 1) % 2].http.post(path, json=said(f"more {m}")) for m in range(n % 4)
        ]
        done = await both[0].settled(run["run_id"])
        assert done["outcome"] == "succeeded"
        for answer in sent:
            if answer.status_code != 202:
                the_problem(answer, 409, "run_finished")
        taken = [m for m, answer in enumerate(sent) if answer.status_code == 202]
        log = await texts(both[1], run["thread_id"])
        assert [text for role, text in log if role == "user"] == [
            "hello",
            *(f"more {m}" for m in taken),
        ]
        assert log[-1][0] == "assistant"
        return len(taken)

    for _ in range(3):
        await asyncio.gather(*(race(n) for n in range(16)))


async def test_a_run_that_waits_for_people_keeps_what_is_said(both: tuple[Client, Client]) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await there.settled(run["run_id"])
    path = f"/v1/runs/{run['run_id']}/inputs"
    told = await there.post(path, said("by the way"), 202)
    assert told["status"] == "waiting"
    assert (await here.run(run["run_id"]))["status"] == "waiting"
    async with there.events(f"/v1/runs/{run['run_id']}") as stream:
        assert (await stream.rest())[-1]["event_type"] == "input_queued"
    why = (await here.get(f"/v1/runs/{run['run_id']}/explain"))["reasons"]
    assert [reason["code"] for reason in why] == ["waiting_for_tickets"]
    await here.decide(waiting, "approve")
    assert (await there.settled(run["run_id"]))["outcome"] == "succeeded"
    log = await texts(here, run["thread_id"])
    assert ("user", "by the way") in log
    assert log[-1][0] == "assistant"


async def test_a_run_that_waits_for_its_tasks_is_woken(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    effects = Effects(tmp_path / "effects")
    run = await here.start("patient", effects.held("look"))
    await effects.happened()
    assert (await here.settled(run["run_id"]))["status"] == "waiting"
    async with there.events(f"/v1/runs/{run['run_id']}", follow=1) as stream:
        await there.post(f"/v1/runs/{run['run_id']}/inputs", said("are you there?"), 202)
        await stream.until("input_queued")
        await stream.until("inference_complete")
        effects.release()
        await stream.rest()
    assert (await here.run(run["run_id"]))["outcome"] == "succeeded"


async def test_what_can_not_be_steered_says_why(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    done = await here.start("quick", "hello")
    await here.settled(done["run_id"])
    refused = await there.http.post(f"/v1/runs/{done['run_id']}/inputs", json=said("more"))
    the_problem(refused, 409, "run_finished")
    effects = Effects(tmp_path / "effects")
    held = await here.start("quick", effects.held("put"))
    behind = await here.start("quick", "hello", thread_id=held["thread_id"])
    path = f"/v1/runs/{behind['run_id']}"
    assert (await there.post(f"{path}/inputs", said("more"), 202))["status"] == "created"
    await there.post(f"{path}/cancel")
    the_problem(await here.http.post(f"{path}/inputs", json=said("more")), 409, "run_finished")
    effects.release()
    await here.settled(held["run_id"])


# --- queue ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_what_is_queued_is_a_run_in_line(both: tuple[Client, Client], by: str) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["run_id"])
    path = f"/v1/runs/{first['run_id']}/inputs"
    if by == "thread":
        path = f"/v1/threads/{first['thread_id']}/messages"
    answer = await there.http.post(path, json=said("and then this", "queue"))
    told = answer.json()
    assert (answer.status_code, told["status"], len(told["input_ids"])) == (202, "created", 1)
    assert answer.headers["location"] == f"/v1/runs/{told['run_id']}"
    assert told["run_id"] != first["run_id"]
    await here.decide(waiting, "approve")
    assert (await there.settled(told["run_id"]))["outcome"] == "succeeded"
    *_, asked, answered = await texts(here, first["thread_id"])
    assert asked == ("user", "and then this")
    assert answered[0] == "assistant"


@pytest.mark.parametrize("mode", ["queue", "steer"])
async def test_on_an_idle_thread_a_run_is_started(both: tuple[Client, Client], mode: str) -> None:
    here, _ = both
    thread = await here.post("/v1/threads", {}, 201)
    path = f"/v1/threads/{thread['thread_id']}/messages"
    refused = await here.http.post(path, json=said("hello", mode))
    the_problem(refused, 422, "agent_required")
    told = await here.post(path, said("hello", mode, agent_id="quick"), 202)
    assert (await here.settled(told["run_id"]))["outcome"] == "succeeded"
    again = await here.post(path, said("hello again", mode), 202)
    assert (await here.settled(again["run_id"]))["agent_id"] == "quick"
    unknown = await here.http.post(f"/v1/threads/{uuid4()}/messages", json=said("hello", mode))
    the_problem(unknown, 404, "thread_not_found")


async def test_a_mode_that_is_none_is_refused(both: tuple[Client, Client]) -> None:
    run = await both[0].start("quick", "hello")
    refused = await both[0].http.post(f"/v1/runs/{run['run_id']}/inputs", json=said("x", "shout"))
    the_problem(refused, 422, "invalid_request")
    await both[0].settled(run["run_id"])


# --- whoever waits goes on ------------------------------------------------------------------------


ASKS = 'CALL ask {"question": "Which account?"}'


def shown(ticket: dict[str, Any]) -> dict[str, Any]:
    return {
        name: ticket[name] for name in ("id", "ticket_id", "kind", "tool_name", "allowed_actions")
    }


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_a_question_of_a_tool_is_answered_by_a_message(
    both: tuple[Client, Client], by: str
) -> None:
    here, there = both
    run = await here.start("quick", ASKS)
    [ticket] = (await here.settled(run["run_id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{run['run_id']}/inputs"
    if by == "thread":
        path = f"/v1/threads/{run['thread_id']}/messages"
    told = await there.post(path, said("The savings one", "resume_open_run"), 202)
    assert told["run_id"] == run["run_id"]
    assert (await here.settled(run["run_id"]))["outcome"] == "succeeded"
    log = await texts(here, run["thread_id"])
    assert log.count(("user", "The savings one")) == 1
    assert ("tool", "The savings one") in log
    decided = (await here.get(f"/v1/tickets/{ticket['id']}"))["decision"]
    assert (decided["action"], decided["decided_by"]) == ("respond", run["started_by"])
    types = types_of(await here.log(f"/v1/runs/{run['run_id']}"))
    assert types.count("ticket_decided") == types.count("input_delivered") == 1


async def test_no_message_approves_a_call(both: tuple[Client, Client]) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    tickets = (await here.settled(run["run_id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{run['run_id']}/inputs"
    refused = await there.http.post(path, json=said("yes, do it", "resume_open_run"))
    problem = the_problem(refused, 409, "decisions_needed")
    assert problem["tickets"] == [shown(ticket) for ticket in tickets]
    after = await here.run(run["run_id"])
    assert after["waiting"]["tickets"] == tickets
    assert (await here.get(f"/v1/threads/{run['thread_id']}/inputs"))["items"] == []


async def test_a_run_that_waits_for_its_tasks_goes_on_with_a_message(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    effects = Effects(tmp_path / "effects")
    run = await here.start("patient", effects.held("look"))
    await effects.happened()
    assert (await here.settled(run["run_id"]))["status"] == "waiting"
    path = f"/v1/threads/{run['thread_id']}/messages"
    async with there.events(f"/v1/runs/{run['run_id']}", follow=1) as stream:
        await there.post(path, said("are you there?", "resume_open_run"), 202)
        await stream.until("input_delivered")
        effects.release()
        await stream.rest()
    assert (await here.run(run["run_id"]))["outcome"] == "succeeded"


async def test_a_run_that_waits_for_nobody_is_not_resumed(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    idle = await here.post("/v1/threads", {}, 201)
    messages = f"/v1/threads/{idle['thread_id']}/messages"
    more = said("more", "resume_open_run")
    the_problem(await there.http.post(messages, json=more), 409, "run_not_waiting")
    effects = Effects(tmp_path / "effects")
    held = await here.start("quick", effects.held("put"))
    behind = await here.start("quick", "hello", thread_id=held["thread_id"])
    for run in (held, behind):
        path = f"/v1/runs/{run['run_id']}/inputs"
        the_problem(await there.http.post(path, json=more), 409, "run_not_waiting")
    effects.release()
    await here.settled(behind["run_id"])
    path = f"/v1/runs/{held['run_id']}/inputs"
    the_problem(await there.http.post(path, json=more), 409, "run_finished")


async def test_of_many_answers_in_words_one_counts(both: tuple[Client, Client]) -> None:
    """The others are read too, or refused."""
    run = await both[0].start("quick", ASKS)
    [ticket] = (await both[0].settled(run["run_id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{run['run_id']}/inputs"
    answers = await asyncio.gather(
        *(both[n % 2].http.post(path, json=said(f"{n}", "resume_open_run")) for n in range(20))
    )
    assert (await both[1].settled(run["run_id"]))["outcome"] == "succeeded"
    taken = [str(n) for n, answer in enumerate(answers) if answer.status_code == 202]
    refused = {answer.json()["code"] for answer in answers if answer.status_code == 409}
    assert refused <= {"run_not_waiting", "run_finished"}
    assert len(taken) + sum(answer.status_code == 409 for answer in answers) == 20
    log = await texts(both[0], run["thread_id"])
    assert sorted(text for role, text in log[1:] if role == "user") == sorted(taken)
    decided = (await both[0].get(f"/v1/tickets/{ticket['id']}"))["decision"]
    assert [text for role, text in log if role == "tool"][-1] == decided["payload"]
    types = types_of(await both[0].log(f"/v1/runs/{run['run_id']}"))
    assert types.count("ticket_decided") == 1


# --- sent twice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["queue", "steer"])
async def test_what_is_sent_twice_under_a_key_is_read_once(
    both: tuple[Client, Client], mode: str
) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(run["run_id"])
    path, headers = f"/v1/runs/{run['run_id']}/inputs", {"Idempotency-Key": str(uuid4())}
    first, again = [
        await one.http.post(path, json=said("once", mode), headers=headers) for one in both
    ]
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    await there.decide(waiting, "approve")
    await here.settled(first.json()["run_id"])
    log = await texts(here, run["thread_id"])
    assert log.count(("user", "once")) == 1
