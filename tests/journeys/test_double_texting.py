"""The journey of messages that come while a run goes on, or all at once, through two servers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from app.commands.runs.new_run import OnActive
from tests.support.conditions import Effects
from tests.support.conversations import said, texts
from tests.support.invariants import broken_invariants
from tests.support.problems import the_problem
from tests.support.streams import Client, Event, start_body, types_of

pytestmark = pytest.mark.anyio

STARTS = 20


# --- one thread, many starts ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What became of many starts at once on one idle thread, of which each was to call a tool."""

    thread: Mapping[str, Any]
    """When all had their answers, and the first run's call was still under way."""
    log: Sequence[Event]
    created: Sequence[str]
    """The runs, as the thread's lock let them in."""
    done: Mapping[str, Mapping[str, Any]]
    refused: Sequence[Mapping[str, Any]]
    effects: int
    users: Sequence[str]
    """What users have said, as it counts."""
    asked: Mapping[str, str]
    """What each run that was created was started with."""

    @property
    def outcomes(self) -> list[str]:
        return [self.done[run_id]["outcome"] for run_id in self.created]


async def all_in_line(crowd: Crowd) -> None:
    assert crowd.outcomes == ["succeeded"] * STARTS
    assert (crowd.thread["open_run_id"], crowd.thread["queue_length"]) == (crowd.created[0], 19)
    created = [event for event in crowd.log if event["event_type"] == "run_created"]
    assert [event["position"] for event in created] == list(range(STARTS))
    assert crowd.effects == STARTS
    assert crowd.users == [crowd.asked[run_id] for run_id in crowd.created]


async def one_and_nobody_else(crowd: Crowd) -> None:
    assert crowd.outcomes == ["succeeded"]
    assert len(crowd.refused) == STARTS - 1
    assert {problem["active_run_id"] for problem in crowd.refused} == set(crowd.created)
    assert crowd.effects == len(crowd.users) == 1


async def one_that_reads_them_all(crowd: Crowd) -> None:
    assert crowd.outcomes == ["succeeded"]
    types = types_of(list(crowd.log))
    assert types.count("input_queued") == types.count("input_delivered") == STARTS - 1
    assert len(set(crowd.users)) == len(crowd.users) == STARTS


async def the_last_is_heard_out(crowd: Crowd) -> None:
    assert set(crowd.outcomes) <= {"succeeded", "cancelled"}
    assert crowd.outcomes[0] == "cancelled"
    assert crowd.outcomes[-1] == "succeeded"
    begun = [event["run_id"] for event in crowd.log if event["event_type"] == "run_start"]
    assert crowd.users == [crowd.asked[run_id] for run_id in begun]


async def the_last_is_all_there_is(crowd: Crowd) -> None:
    assert crowd.outcomes[0] == "cancelled"
    assert crowd.outcomes[-1] == "succeeded"
    counts = [run_id for run_id in crowd.created if crowd.done[run_id]["rolled_back_by"] is None]
    assert crowd.users == [crowd.asked[run_id] for run_id in counts]
    said = [event["run_id"] for event in crowd.log if event["event_type"] == "rolled_back"]
    assert sorted(said) == sorted(set(crowd.created) - set(counts))


Check: TypeAlias = Callable[[Crowd], Awaitable[None]]
CHECKS: Mapping[OnActive, Check] = {
    OnActive.ENQUEUE: all_in_line,
    OnActive.REJECT: one_and_nobody_else,
    OnActive.STEER: one_that_reads_them_all,
    OnActive.INTERRUPT: the_last_is_heard_out,
    OnActive.ROLLBACK: the_last_is_all_there_is,
}


@pytest.mark.parametrize("on_active", OnActive, ids=str)
async def test_of_many_starts_at_once_one_has_the_thread_and_the_others_get_what_they_asked_for(
    both: tuple[Client, Client], shared_database_url: str, tmp_path: Path, on_active: OnActive
) -> None:
    effects = Effects(tmp_path / "effects")
    call = effects.held("look")
    thread_id = (await both[0].post("/v1/threads", {}, 201))["thread_id"]
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
            asked.setdefault(answer.json()["run_id"], prompt)
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
    crowd = Crowd(
        thread=thread,
        log=log,
        created=created,
        done=done,
        refused=refused,
        effects=len(effects.lines),
        users=[text for role, text in await texts(both[0], thread_id) if role == "user"],
        asked=asked,
    )
    await CHECKS[on_active](crowd)


# --- whoever is there makes way -------------------------------------------------------------------


async def test_what_was_rolled_back_is_shown_to_who_asks_for_it(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(first["run_id"])
    place = {"thread_id": first["thread_id"]}
    second = await there.start("quick", "no", **place, on_active="rollback")
    gone = await here.run(first["run_id"])
    assert (gone["outcome"], gone["rolled_back_by"]) == ("cancelled", second["run_id"])
    assert second["run_id"] in gone["termination"]["detail"]
    assert (await there.settled(second["run_id"]))["outcome"] == "succeeded"
    path = f"/v1/threads/{first['thread_id']}/messages"
    counts = (await here.get(path))["items"]
    whole = (await here.get(path, include="rolled_back"))["items"]
    assert [message["seq"] for message in whole] == list(range(1, len(whole) + 1))
    out = [message for message in whole if message["rolled_back_by"] is not None]
    assert {message["rolled_back_by"] for message in out} == {second["run_id"]}
    assert [message for message in whole if message not in out] == counts
    assert [message["role"] for message in counts] == ["user", "assistant"]
    snapshot = await there.get(f"/v1/runs/{first['run_id']}/snapshot")
    assert snapshot["messages"] == out
    ranges = gone["input"]["range"], gone["output"]["range"]
    assert (ranges[0]["from_seq"], ranges[1]["to_seq"]) == (1, len(out))


@pytest.mark.parametrize("way", ["start", "inputs"])
async def test_a_run_that_waits_makes_way_at_once(both: tuple[Client, Client], way: str) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(first["run_id"])
    if way == "start":
        body = start_body("quick", "no", thread_id=first["thread_id"], on_active="interrupt")
        second = await there.post("/v1/runs", body, 202)
    else:
        path = f"/v1/runs/{first['run_id']}/inputs"
        second = await there.post(path, said("no", "interrupt_then_queue"), 202)
    assert (await here.run(first["run_id"]))["outcome"] == "cancelled"
    assert (await here.settled(second["run_id"]))["outcome"] == "succeeded"
    reason = (await here.run(first["run_id"]))["termination"]
    assert second["run_id"] in str(reason)


async def test_an_interrupted_run_makes_way_for_those_in_line(
    both: tuple[Client, Client],
) -> None:
    here, there = both
    first = await here.start("quick", 'CALL risky {"what": "it"}')
    await here.settled(first["run_id"])
    place = {"thread_id": first["thread_id"]}
    second = await there.start("quick", 'CALL risky {"what": "this"}', **place)
    third = await there.start("quick", "hello", **place, on_active="interrupt")
    assert third["status"] == "created"
    waiting = await here.settled(second["run_id"])
    assert waiting["status"] == "waiting"
    await here.decide(waiting, "approve")
    assert (await here.settled(third["run_id"]))["outcome"] == "succeeded"


async def test_a_start_that_steers_can_not_name_its_run(both: tuple[Client, Client]) -> None:
    body = start_body("quick", "hello", on_active="steer", run_id=str(uuid4()))
    the_problem(await both[0].http.post("/v1/runs", json=body), 422, "invalid_request")
