"""Snapshots have the activities of tools and background tasks, up to a number of changes."""

import json
from typing import Any

import pytest

from app.domain.events.activities import MAX_ACTIVITY_CHANGES
from tests.support.streams import Client, types_of

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


async def planned(client: Client, tool: str, **arguments: int) -> Json:
    """The snapshot of a run whose tool has shown a plan."""
    run = await client.ended(
        (await client.start("planner", f"CALL {tool} {json.dumps(arguments)}"))["id"]
    )
    return await client.get(f"/v1/runs/{run['id']}/snapshot")


async def test_a_snapshot_has_the_deltas_of_an_activity_applied(client: Client) -> None:
    snapshot = await planned(client, "plan", width=2, changes=3)
    log = await client.log(f"/v1/runs/{snapshot['run']['id']}")
    assert types_of(log).count("activity_delta") == 3
    [activity] = snapshot["activities"]
    assert activity["activity_type"] == "plan"
    assert activity["content"] == {"steps": [-2, -1, 0, 0, 1]}
    assert not snapshot["has_more_activities"]


async def test_a_snapshot_has_the_activities_of_background_tasks(client: Client) -> None:
    snapshot = await planned(client, "plan_later", width=3)
    contents = {each["activity_type"]: each["content"] for each in snapshot["activities"]}
    assert contents["plan"] == {"steps": [0, 1, 2, 3]}


async def test_an_activity_with_more_changes_than_a_snapshot_has_room_for_is_left_out(
    client: Client,
) -> None:
    calls = (
        f'CALL plan {{"width": 0, "changes": {MAX_ACTIVITY_CHANGES}}}'
        ' CALL plan {"width": 1, "changes": 0}'
    )
    run = await client.ended((await client.start("planner", calls))["id"])
    snapshot = await client.get(f"/v1/runs/{run['id']}/snapshot")
    assert [each["content"] for each in snapshot["activities"]] == [{"steps": [0]}]
    assert snapshot["has_more_activities"]


async def test_activities_that_together_have_too_many_changes_are_the_newest(
    client: Client,
) -> None:
    changes = MAX_ACTIVITY_CHANGES // 2
    calls = " ".join(f'CALL plan {{"width": {width}, "changes": {changes}}}' for width in (0, 1))
    run = await client.ended((await client.start("planner", calls))["id"])
    snapshot = await client.get(f"/v1/runs/{run['id']}/snapshot")
    [activity] = snapshot["activities"]
    log = await client.log(f"/v1/runs/{run['id']}")
    shown = [each for each in log if each["event_type"].startswith("activity_")]
    assert activity["message_id"] == shown[-1]["message_id"]
    assert snapshot["has_more_activities"]
