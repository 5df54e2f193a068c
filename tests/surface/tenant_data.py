"""The rows of one tenant: ids of runs, threads, tickets and more, by the parameters that take them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.conditions import eventually
from tests.support.rows import nothing_is_queued
from tests.support.streams import Client

TEXT = ["hello", 'CALL add {"a": 1, "b": 2}', 'CALL risky {"what": "it"}']
"""Prompts that the agents act on."""
ASKS = 'CALL risky {"what": "%s"}'


@dataclass(frozen=True, slots=True)
class TenantData:
    mark: str
    """A mark in every text of the tenant."""
    ids: Mapping[str, list[str]]
    """The existing values of each path parameter."""


async def create_tenant_data(client: Client, mark: str, database: str) -> TenantData:
    """Create a waiting run with an input, a decided run, a rule and a queued run."""
    # A refusal shows the key that it was asked for, so the mark is in the value only.
    memory_key = f"memory-of-{mark}"
    kept = await client.http.put(f"/v1/memories/{memory_key}", json={"value": f"canary-{mark}"})
    assert kept.status_code == 200, kept.text
    mark = f"canary-{mark}"
    waiting, answered = await _waiting_run(client, mark), await _waiting_run(client, mark)
    rule = (await client.decide(answered, "approve", remember="thread"))["results"][0]["rule_id"]
    await client.settled(answered["id"])
    more = {"messages": [{"role": "user", "content": mark}], "mode": "steer"}
    steered = await client.post(f"/v1/runs/{waiting['id']}/inputs", more, 202)
    queued = await client.start("quick", mark, thread_id=waiting["thread_id"])
    await eventually(partial(nothing_is_queued, database))
    runs = (waiting, answered, queued)
    return TenantData(
        mark,
        {
            "run_id": [run["id"] for run in runs],
            "thread_id": [waiting["thread_id"], answered["thread_id"]],
            "ticket_id": [run["waiting"]["tickets"][0]["id"] for run in (waiting, answered)],
            "input_id": steered["input_ids"],
            "rule_id": [rule],
            "agent_id": ["quick", "talker"],
            "server_id": ["shelf"],
            "memory_key": [memory_key],
        },
    )


async def _waiting_run(client: Client, mark: str) -> dict[str, Any]:
    started = await client.start("quick", ASKS % mark, metadata={"mark": mark})
    run = await client.settled(started["id"])
    assert run["status"] == "waiting"
    return run
