"""What a tenant has: runs, threads, tickets and more, by the names that parameters have for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.conditions import eventually
from tests.support.rows import nothing_is_queued
from tests.support.streams import Client

SAID = ["hello", 'CALL add {"a": 1, "b": 2}', 'CALL risky {"what": "it"}']
"""What the agents do something about."""
ASKS = 'CALL risky {"what": "%s"}'


@dataclass(frozen=True, slots=True)
class Belongings:
    mark: str
    """Stands in every text that the tenant has."""
    ids: Mapping[str, list[str]]
    """By parameter; `id` depends on where it stands."""

    def named(self, path: str, parameter: str) -> list[str]:
        """What a parameter of an address may be."""
        if parameter == "id":
            parameter = "rule_id" if "/rules/" in path else "ticket_id"
        return self.ids.get(parameter, [])


async def belongings_of(client: Client, mark: str, database: str) -> Belongings:
    """Of everything one: a run that waits for two answers, one that was answered, one in line."""
    mark = f"canary-{mark}"
    waiting, answered = await _asks(client, mark), await _asks(client, mark)
    rule = (await client.decide(answered, "approve", remember="thread"))["results"][0]["rule_id"]
    await client.settled(answered["run_id"])
    more = {"messages": [{"role": "user", "content": mark}], "mode": "steer"}
    steered = await client.post(f"/v1/runs/{waiting['run_id']}/inputs", more, 202)
    queued = await client.start("quick", mark, thread_id=waiting["thread_id"])
    await eventually(partial(nothing_is_queued, database))
    runs = (waiting, answered, queued)
    return Belongings(
        mark,
        {
            "run_id": [run["run_id"] for run in runs],
            "thread_id": [waiting["thread_id"], answered["thread_id"]],
            "ticket_id": [run["waiting"]["tickets"][0]["id"] for run in (waiting, answered)],
            "input_id": steered["input_ids"],
            "rule_id": [rule],
            "agent_id": ["quick", "talker"],
        },
    )


async def _asks(client: Client, mark: str) -> dict[str, Any]:
    started = await client.start("quick", ASKS % mark, metadata={"mark": mark})
    run = await client.settled(started["run_id"])
    assert run["status"] == "waiting"
    return run
