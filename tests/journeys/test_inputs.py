"""Messages to a run that is open, through two servers."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.conditions import Effects
from tests.support.conversations import message_body, texts
from tests.support.problems import the_problem
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio


# --- steer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_a_steered_message_is_read_before_the_next_step(
    both: tuple[Client, Client], tmp_path: Path, by: str
) -> None:
    here, there = both
    effects = Effects(tmp_path / "effects")
    run = await here.start("quick", effects.held("look"))
    await effects.happened()
    path = f"/v1/runs/{run['id']}/inputs"
    if by == "thread":
        path = f"/v1/threads/{run['thread_id']}/messages"
    accepted = await there.post(path, message_body("and this"), 202)
    assert (accepted["run_id"], accepted["status"]) == (run["id"], "running")
    effects.release()
    assert (await there.settled(run["id"]))["outcome"] == "succeeded"
    log = await here.log(f"/v1/runs/{run['id']}")
    [queued] = [event for event in log if event["event_type"] == "input_queued"]
    assert [queued["input_id"]] == accepted["input_ids"]
    assert [role for role, _ in await texts(here, run["thread_id"])] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


async def test_a_run_reads_every_accepted_message_before_it_ends(
    both: tuple[Client, Client],
) -> None:
    """A message to a run that is about to end is answered by that run, or refused."""

    async def race(n: int) -> int:
        run = await both[n % 2].start("quick", "hello")
        path = f"/v1/runs/{run['id']}/inputs"
        sent = [
            await both[(n + 1) % 2].http.post(path, json=message_body(f"more {m}"))
            for m in range(n % 4)
        ]
        done = await both[0].settled(run["id"])
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


async def test_a_run_that_waits_for_a_ticket_keeps_a_steered_message(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await there.settled(run["id"])
    path = f"/v1/runs/{run['id']}/inputs"
    accepted = await there.post(path, message_body("by the way"), 202)
    assert accepted["status"] == "waiting"
    assert (await here.run(run["id"]))["status"] == "waiting"
    async with there.events(f"/v1/runs/{run['id']}") as stream:
        assert (await stream.rest())[-1]["event_type"] == "input_queued"
    why = (await here.get(f"/v1/runs/{run['id']}/explain"))["reasons"]
    assert [reason["code"] for reason in why] == ["waiting_for_tickets"]
    await here.decide(waiting, "approve")
    assert (await there.settled(run["id"]))["outcome"] == "succeeded"
    log = await texts(here, run["thread_id"])
    assert ("user", "by the way") in log
    assert log[-1][0] == "assistant"


async def test_a_steered_message_resumes_a_run_that_waits_for_tasks(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    effects = Effects(tmp_path / "effects")
    run = await here.start("patient", effects.held("look"))
    await effects.happened()
    assert (await here.settled(run["id"]))["status"] == "waiting"
    async with there.events(f"/v1/runs/{run['id']}", follow=1) as stream:
        await there.post(f"/v1/runs/{run['id']}/inputs", message_body("are you there?"), 202)
        await stream.until("input_queued")
        await stream.until("inference_complete")
        effects.release()
        await stream.rest()
    assert (await here.run(run["id"]))["outcome"] == "succeeded"


async def test_a_message_to_a_finished_run_is_refused(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    done = await here.start("quick", "hello")
    await here.settled(done["id"])
    refused = await there.http.post(f"/v1/runs/{done['id']}/inputs", json=message_body("more"))
    the_problem(refused, 409, "run_finished")
    effects = Effects(tmp_path / "effects")
    held = await here.start("quick", effects.held("put"))
    behind = await here.start("quick", "hello", thread_id=held["thread_id"])
    path = f"/v1/runs/{behind['id']}"
    assert (await there.post(f"{path}/inputs", message_body("more"), 202))["status"] == "created"
    await there.post(f"{path}/cancel")
    the_problem(
        await here.http.post(f"{path}/inputs", json=message_body("more")), 409, "run_finished"
    )
    effects.release()
    await here.settled(held["id"])


# --- queue ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_a_queued_message_creates_a_queued_run(both: tuple[Client, Client], by: str) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(first["id"])
    path = f"/v1/runs/{first['id']}/inputs"
    if by == "thread":
        path = f"/v1/threads/{first['thread_id']}/messages"
    answer = await there.http.post(path, json=message_body("and then this", "queue"))
    accepted = answer.json()
    assert (answer.status_code, accepted["status"], len(accepted["input_ids"])) == (
        202,
        "created",
        1,
    )
    assert answer.headers["location"] == f"/v1/runs/{accepted['run_id']}"
    assert accepted["run_id"] != first["id"]
    await here.decide(waiting, "approve")
    assert (await there.settled(accepted["run_id"]))["outcome"] == "succeeded"
    *_, asked, answered = await texts(here, first["thread_id"])
    assert asked == ("user", "and then this")
    assert answered[0] == "assistant"


@pytest.mark.parametrize("mode", ["queue", "steer"])
async def test_a_message_on_an_idle_thread_starts_a_run(
    both: tuple[Client, Client], mode: str
) -> None:
    here, _ = both
    thread = await here.post("/v1/threads", {}, 201)
    path = f"/v1/threads/{thread['id']}/messages"
    refused = await here.http.post(path, json=message_body("hello", mode))
    the_problem(refused, 422, "agent_required")
    accepted = await here.post(path, message_body("hello", mode, agent_id="quick"), 202)
    assert (await here.settled(accepted["run_id"]))["outcome"] == "succeeded"
    again = await here.post(path, message_body("hello again", mode), 202)
    assert (await here.settled(again["run_id"]))["agent_id"] == "quick"
    unknown = await here.http.post(
        f"/v1/threads/{uuid4()}/messages", json=message_body("hello", mode)
    )
    the_problem(unknown, 404, "thread_not_found")


async def test_an_unknown_mode_is_refused(both: tuple[Client, Client]) -> None:
    run = await both[0].start("quick", "hello")
    refused = await both[0].http.post(
        f"/v1/runs/{run['id']}/inputs", json=message_body("x", "shout")
    )
    the_problem(refused, 422, "invalid_request")
    await both[0].settled(run["id"])


# --- resume_open_run ------------------------------------------------------------------------------


ASKS = 'CALL ask {"question": "Which account?"}'


def shown(ticket: dict[str, Any]) -> dict[str, Any]:
    return {name: ticket[name] for name in ("id", "kind", "tool_name", "allowed_actions")}


@pytest.mark.parametrize("by", ["run", "thread"])
async def test_a_message_answers_a_question_of_a_tool(both: tuple[Client, Client], by: str) -> None:
    here, there = both
    run = await here.start("quick", ASKS)
    [ticket] = (await here.settled(run["id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{run['id']}/inputs"
    if by == "thread":
        path = f"/v1/threads/{run['thread_id']}/messages"
    accepted = await there.post(path, message_body("The savings one", "resume_open_run"), 202)
    assert accepted["run_id"] == run["id"]
    assert (await here.settled(run["id"]))["outcome"] == "succeeded"
    log = await texts(here, run["thread_id"])
    assert log.count(("user", "The savings one")) == 1
    assert ("tool", "The savings one") in log
    decided = (await here.get(f"/v1/tickets/{ticket['id']}"))["decision"]
    assert (decided["action"], decided["decided_by"]) == ("respond", run["started_by"])
    types = types_of(await here.log(f"/v1/runs/{run['id']}"))
    assert types.count("ticket_decided") == types.count("input_delivered") == 1


async def test_a_message_cannot_approve_a_call(both: tuple[Client, Client]) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    tickets = (await here.settled(run["id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{run['id']}/inputs"
    refused = await there.http.post(path, json=message_body("yes, do it", "resume_open_run"))
    problem = the_problem(refused, 409, "decisions_needed")
    assert problem["tickets"] == [shown(ticket) for ticket in tickets]
    after = await here.run(run["id"])
    assert after["waiting"]["tickets"] == tickets
    assert (await here.get(f"/v1/threads/{run['thread_id']}/inputs"))["items"] == []


async def test_resume_open_run_resumes_a_run_that_waits_for_tasks(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    effects = Effects(tmp_path / "effects")
    run = await here.start("patient", effects.held("look"))
    await effects.happened()
    assert (await here.settled(run["id"]))["status"] == "waiting"
    path = f"/v1/threads/{run['thread_id']}/messages"
    async with there.events(f"/v1/runs/{run['id']}", follow=1) as stream:
        await there.post(path, message_body("are you there?", "resume_open_run"), 202)
        await stream.until("input_delivered")
        effects.release()
        await stream.rest()
    assert (await here.run(run["id"]))["outcome"] == "succeeded"


async def test_resume_open_run_refuses_runs_that_do_not_wait(
    both: tuple[Client, Client], tmp_path: Path
) -> None:
    here, there = both
    idle = await here.post("/v1/threads", {}, 201)
    messages = f"/v1/threads/{idle['id']}/messages"
    more = message_body("more", "resume_open_run")
    the_problem(await there.http.post(messages, json=more), 409, "run_not_waiting")
    effects = Effects(tmp_path / "effects")
    held = await here.start("quick", effects.held("put"))
    behind = await here.start("quick", "hello", thread_id=held["thread_id"])
    for run in (held, behind):
        path = f"/v1/runs/{run['id']}/inputs"
        the_problem(await there.http.post(path, json=more), 409, "run_not_waiting")
    effects.release()
    await here.settled(behind["id"])
    path = f"/v1/runs/{held['id']}/inputs"
    the_problem(await there.http.post(path, json=more), 409, "run_finished")


async def test_one_of_many_message_answers_decides_the_ticket(both: tuple[Client, Client]) -> None:
    """The other messages are read as well, or refused."""
    run = await both[0].start("quick", ASKS)
    [ticket] = (await both[0].settled(run["id"]))["waiting"]["tickets"]
    path = f"/v1/runs/{run['id']}/inputs"
    answers = await asyncio.gather(
        *(
            both[n % 2].http.post(path, json=message_body(f"{n}", "resume_open_run"))
            for n in range(20)
        )
    )
    assert (await both[1].settled(run["id"]))["outcome"] == "succeeded"
    taken = [str(n) for n, answer in enumerate(answers) if answer.status_code == 202]
    refused = {answer.json()["code"] for answer in answers if answer.status_code == 409}
    assert refused <= {"run_not_waiting", "run_finished"}
    assert len(taken) + sum(answer.status_code == 409 for answer in answers) == 20
    log = await texts(both[0], run["thread_id"])
    assert sorted(text for role, text in log[1:] if role == "user") == sorted(taken)
    decided = (await both[0].get(f"/v1/tickets/{ticket['id']}"))["decision"]
    assert [text for role, text in log if role == "tool"][-1] == decided["payload"]
    types = types_of(await both[0].log(f"/v1/runs/{run['id']}"))
    assert types.count("ticket_decided") == 1


# --- sent twice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["queue", "steer"])
async def test_a_message_sent_twice_under_one_key_is_read_once(
    both: tuple[Client, Client], mode: str
) -> None:
    here, there = both
    run = await here.start("quick", 'CALL risky {"what": "it"}')
    waiting = await here.settled(run["id"])
    path, headers = f"/v1/runs/{run['id']}/inputs", {"Idempotency-Key": str(uuid4())}
    first, again = [
        await one.http.post(path, json=message_body("once", mode), headers=headers) for one in both
    ]
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    await there.decide(waiting, "approve")
    await here.settled(first.json()["run_id"])
    log = await texts(here, run["thread_id"])
    assert log.count(("user", "once")) == 1
