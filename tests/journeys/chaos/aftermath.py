"""After the faults: half of the trees are cancelled, every ticket is answered, every pause is ended, and
every run must end."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
import httpx2

from app.clock import sleep
from tests.journeys.chaos.checks_of_children import TREE_END_TIMEOUT_SECONDS
from tests.journeys.chaos.checks_of_signals import AFTERMATH
from tests.journeys.chaos.fleet import Replica
from tests.journeys.chaos.history import Answer, History, Kind, Operation

SETTLE_TIMEOUT_SECONDS = 90.0
"""Seconds, with a margin for a busy machine."""
_POLL_SECONDS = 0.2
_NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
_LEFT = """
SELECT count(*) FROM runs
WHERE status <> 'done' OR parent_run_id IS NOT NULL AND request ->> 'keep' = 'false'
"""
"""Runs that are not done, and children that must be deleted."""
_TREES = """
SELECT id::text FROM runs r WHERE parent_run_id IS NULL AND status <> 'done'
    AND EXISTS (SELECT FROM runs c WHERE c.parent_run_id = r.id AND c.status <> 'done')
ORDER BY created_at
"""
_PAUSED = "SELECT id::text FROM runs WHERE status <> 'done' AND pause_requested_at IS NOT NULL"
_LEFT_OF_CANCELLED = """
SELECT count(*) FROM runs r JOIN runs root ON root.tenant = r.tenant AND root.id = r.root_run_id
WHERE r.status <> 'done' AND root.cancel_requested_at IS NOT NULL
"""


async def settle(
    url: str, replicas: Sequence[Replica], http: httpx2.AsyncClient, history: History
) -> None:
    """Answer tickets until every run is done; the history records how long that took, or that it didn't happen.

    Before that, every second tree is cancelled and must end without answers to its tickets.
    """
    began = asyncio.get_running_loop().time()
    connection = await asyncpg.connect(url)
    history.calm_at = await connection.fetchval(_NOW)
    try:
        with suppress(TimeoutError):  # the checker reports the late ones
            async with asyncio.timeout(TREE_END_TIMEOUT_SECONDS):
                await _cancel_trees(connection, f"{replicas[0].base}", http, history)
        async with asyncio.timeout(SETTLE_TIMEOUT_SECONDS):
            while await connection.fetchval(_LEFT):
                with suppress(httpx2.TransportError):
                    await _resume_paused(connection, f"{replicas[0].base}", http, history)
                for replica in replicas:
                    with suppress(httpx2.TransportError):
                        await _answer_tickets(f"{replica.base}", http, history)
                        await _send_signals(f"{replica.base}", http, history)
                await sleep(_POLL_SECONDS)
        history.settled_in = asyncio.get_running_loop().time() - began
    except TimeoutError:
        history.settled_in = None
    finally:
        connection.terminate()


async def _cancel_trees(
    connection: "asyncpg.Connection[asyncpg.Record]",
    base: str,
    http: httpx2.AsyncClient,
    history: History,
) -> None:
    for number, row in enumerate((await connection.fetch(_TREES))[::2]):
        operation = Operation(
            mark=f"aftermath.tree.{number}",
            kind=Kind.CANCEL,
            path=f"/v1/runs/{row['id']}/cancel",
            body={"reason": "It is over."},
            tries=1,
        )
        history.operations.append(operation)
        response = await http.post(base + operation.path, json=operation.body)
        operation.answered(response.status_code, response.json())
    while await connection.fetchval(_LEFT_OF_CANCELLED):
        await sleep(_POLL_SECONDS)


async def _resume_paused(
    connection: "asyncpg.Connection[asyncpg.Record]",
    base: str,
    http: httpx2.AsyncClient,
    history: History,
) -> None:
    for number, row in enumerate(await connection.fetch(_PAUSED)):
        operation = Operation(
            mark=f"aftermath.paused.{number}",
            kind=Kind.RESUME,
            path=f"/v1/runs/{row['id']}/resume",
            body={},
            tries=1,
        )
        history.operations.append(operation)
        response = await http.post(base + operation.path, json=operation.body)
        operation.answered(response.status_code, response.json())


async def _answer_tickets(base: str, http: httpx2.AsyncClient, history: History) -> None:
    """Respond to every open ticket; each kind of ticket accepts `respond`."""
    tickets = (await http.get(f"{base}/v1/tickets?status=open&limit=100")).json()["items"]
    for number, ticket in enumerate(tickets):
        answer = {"ticket_id": ticket["id"], "action": "respond", "result": "it is over"}
        operation = Operation(
            mark=f"aftermath.{number}",
            kind=Kind.DECIDE,
            path=f"/v1/runs/{ticket['run_id']}/decisions",
            body={"decisions": [answer]},
            tries=1,
        )
        history.operations.append(operation)
        response = await http.post(base + operation.path, json=operation.body)
        operation.answered(response.status_code, response.json())
        if operation.answer is Answer.UNKNOWN:
            return


async def _send_signals(base: str, http: httpx2.AsyncClient, history: History) -> None:
    """Send a signal for every event that a call waits for."""
    query = "status=open&kind=event&limit=100"
    for ticket in (await http.get(f"{base}/v1/tickets?{query}")).json()["items"]:
        mark = f"{AFTERMATH}{ticket['id']}"
        operation = Operation(
            mark=mark,
            kind=Kind.SIGNAL,
            path="/v1/signals",
            body={"signal_id": mark, **ticket["event"], "payload": mark},
            tries=1,
        )
        history.operations.append(operation)
        response = await http.post(base + operation.path, json=operation.body)
        operation.answered(response.status_code, response.json())
        if operation.answer is Answer.UNKNOWN:
            return
