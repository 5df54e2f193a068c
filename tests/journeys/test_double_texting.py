"""Starts on a thread that has a run, or many starts at once, through two servers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from app.commands.runs.new_run import OnActive
from tests.support.conditions import Effects
from tests.support.conversations import message_body, texts
from tests.support.invariants import broken_invariants
from tests.support.problems import the_problem
from tests.support.streams import Client, Event, start_body, types_of

pytestmark = pytest.mark.anyio

STARTS = 20


# --- one thread, many starts ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """The results of simultaneous starts on one idle thread; each prompt asks for one tool call."""

    thread: Mapping[str, Any]
    """The thread after all starts were answered, while the first run's call was still executing."""
    log: Sequence[Event]
    created: Sequence[str]
    """The runs in the order in which they took the thread's lock."""
    done: Mapping[str, Mapping[str, Any]]
    refused: Sequence[Mapping[str, Any]]
    effects: int
    users: Sequence[str]
    """The user messages in the log that are not rolled back."""
    asked: Mapping[str, str]
    """The prompt of each created run."""

    @property
    def outcomes(self) -> list[str]:
        return [self.done[run_id]["outcome"] for run_id in self.created]


async def all_runs_are_queued(starts: Starts) -> None:
    assert starts.outcomes == ["succeeded"] * STARTS
    assert (starts.thread["open_run_id"], starts.thread["queue_length"]) == (starts.created[0], 19)
    created = [event for event in starts.log if event["event_type"] == "run_created"]
    assert [event["position"] for event in created] == list(range(STARTS))
    assert starts.effects == STARTS
    assert starts.users == [starts.asked[run_id] for run_id in starts.created]


async def only_one_run_starts(starts: Starts) -> None:
    assert starts.outcomes == ["succeeded"]
    assert len(starts.refused) == STARTS - 1
    assert {problem["active_run_id"] for problem in starts.refused} == set(starts.created)
    assert starts.effects == len(starts.users) == 1


async def one_run_reads_all_messages(starts: Starts) -> None:
    assert starts.outcomes == ["succeeded"]
    types = types_of(list(starts.log))
    assert types.count("input_queued") == types.count("input_delivered") == STARTS - 1
    assert len(set(starts.users)) == len(starts.users) == STARTS


async def only_the_last_run_finishes(starts: Starts) -> None:
    assert set(starts.outcomes) <= {"succeeded", "cancelled"}
    assert starts.outcomes[0] == "cancelled"
    assert starts.outcomes[-1] == "succeeded"
    begun = [event["run_id"] for event in starts.log if event["event_type"] == "run_start"]
    assert starts.users == [starts.asked[run_id] for run_id in begun]


async def all_but_finished_runs_are_rolled_back(starts: Starts) -> None:
    assert starts.outcomes[0] == "cancelled"
    assert starts.outcomes[-1] == "succeeded"
    counts = [
        run_id for run_id in starts.created if starts.done[run_id]["rolled_back_by_run_id"] is None
    ]
    assert starts.users == [starts.asked[run_id] for run_id in counts]
    rolled_back = [event["run_id"] for event in starts.log if event["event_type"] == "rolled_back"]
    assert sorted(rolled_back) == sorted(set(starts.created) - set(counts))


Check: TypeAlias = Callable[[Starts], Awaitable[None]]
CHECKS: Mapping[OnActive, Check] = {
    OnActive.ENQUEUE: all_runs_are_queued,
    OnActive.REJECT: only_one_run_starts,
    OnActive.STEER: one_run_reads_all_messages,
    OnActive.INTERRUPT: only_the_last_run_finishes,
    OnActive.ROLLBACK: all_but_finished_runs_are_rolled_back,
}


@pytest.mark.parametrize("on_active", OnActive, ids=str)
async def test_simultaneous_starts_on_a_thread_follow_on_active(
    both: tuple[Client, Client], shared_database_url: str, tmp_path: Path, on_active: OnActive
) -> None:
    effects = Effects(tmp_path / "effects")
    call = effects.held("look")
    thread_id = (await both[0].post("/v1/threads", {}, 201))["id"]
    prompts = [f"{n} {call}" for n in range(STARTS)]
    answers = await asyncio.gather(
        *(
            both[n % 2].http.post(
                "/v1/runs",
                json=start_body("quick", prompt, thread_id=thread_id, on_active=on_active),
            )
            for n, prompt in enumerate(prompts)
        )
    )
    await effects.happened()
    thread = await both[0].get(f"/v1/threads/{thread_id}")
    effects.release()
    asked: dict[str, str] = {}
    refused = []
    for prompt, answer in zip(prompts, answers, strict=True):
        if answer.status_code == 202:
            asked.setdefault(answer.json()["id"], prompt)
        else:
            refused.append(the_problem(answer, 409, "thread_busy"))
    done = {run_id: await both[1].settled(run_id) for run_id in asked}
    log = await both[0].log(f"/v1/threads/{thread_id}")
    created = [event["run_id"] for event in log if event["event_type"] == "run_created"]
    assert set(created) == set(asked)
    begun = [event["run_id"] for event in log if event["event_type"] == "run_start"]
    assert begun == [run_id for run_id in created if run_id in begun]
    after = await both[0].get(f"/v1/threads/{thread_id}")
    assert (after["open_run_id"], after["queue_length"]) == (None, 0)
    assert await broken_invariants(shared_database_url) == {}
    starts = Starts(
        thread=thread,
        log=log,
        created=created,
        done=done,
        refused=refused,
        effects=len(effects.lines),
        users=[text for role, text in await texts(both[0], thread_id) if role == "user"],
        asked=asked,
    )
    await CHECKS[on_active](starts)


# --- interrupt and rollback -----------------------------------------------------------------------


async def test_rolled_back_messages_are_listed_on_request(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(first["id"])
    on_thread = {"thread_id": first["thread_id"]}
    second = await there.start("quick", "no", **on_thread, on_active="rollback")
    rolled_back = await here.run(first["id"])
    assert (rolled_back["outcome"], rolled_back["rolled_back_by_run_id"]) == (
        "cancelled",
        second["id"],
    )
    assert second["id"] in rolled_back["termination"]["detail"]
    assert (await there.settled(second["id"]))["outcome"] == "succeeded"
    path = f"/v1/threads/{first['thread_id']}/messages"
    counts = (await here.get(path))["items"]
    whole = (await here.get(path, include="rolled_back"))["items"]
    assert [message["seq"] for message in whole] == list(range(1, len(whole) + 1))
    out = [message for message in whole if message["rolled_back_by_run_id"] is not None]
    assert {message["rolled_back_by_run_id"] for message in out} == {second["id"]}
    assert [message for message in whole if message not in out] == counts
    assert [message["role"] for message in counts] == ["user", "assistant"]
    snapshot = await there.get(f"/v1/runs/{first['id']}/snapshot")
    assert snapshot["messages"] == out
    ranges = rolled_back["input"]["range"], rolled_back["output"]["range"]
    assert (ranges[0]["from_seq"], ranges[1]["to_seq"]) == (1, len(out))


@pytest.mark.parametrize("endpoint", ["start", "inputs"])
async def test_a_waiting_run_is_interrupted_at_once(
    both: tuple[Client, Client], endpoint: str
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(first["id"])
    if endpoint == "start":
        body = start_body("quick", "no", thread_id=first["thread_id"], on_active="interrupt")
        second = (await there.post("/v1/runs", body, 202))["id"]
    else:
        path = f"/v1/runs/{first['id']}/inputs"
        second = (await there.post(path, message_body("no", "interrupt_then_queue"), 202))["run_id"]
    assert (await here.run(first["id"]))["outcome"] == "cancelled"
    assert (await here.settled(second))["outcome"] == "succeeded"
    reason = (await here.run(first["id"]))["termination"]
    assert second in str(reason)


async def test_after_an_interrupt_queued_runs_execute_in_order(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(first["id"])
    on_thread = {"thread_id": first["thread_id"]}
    second = await there.start("quick", 'CALL risky {"what": "this"}', **on_thread)
    third = await there.start("quick", "hello", **on_thread, on_active="interrupt")
    assert third["status"] == "created"
    waiting = await here.settled(second["id"])
    assert waiting["status"] == "waiting"
    await here.decide(waiting, "approve")
    assert (await here.settled(third["id"]))["outcome"] == "succeeded"


async def test_a_steering_start_may_not_name_a_run(both: tuple[Client, Client]) -> None:
    body = start_body("quick", "hello", on_active="steer", run_id=str(uuid4()))
    the_problem(await both[0].http.post("/v1/runs", json=body), 422, "invalid_request")
