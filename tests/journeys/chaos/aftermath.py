"""When the faults have stopped: every question is answered, and everything must come to its end."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
import httpx2

from app.clock import pause
from tests.journeys.chaos.fleet import Replica
from tests.journeys.chaos.history import Answer, History, Kind, Operation

SETTLES_WITHIN = 90.0
"""Seconds, on a machine that has other things to do."""
_LOOK_AGAIN = 0.2
_LEFT = "SELECT count(*) FROM runs WHERE status <> 'done'"


async def settle(
    url: str, replicas: Sequence[Replica], http: httpx2.AsyncClient, history: History
) -> None:
    """Answer tickets until no run is left; the history tells how long that took, or that it didn't end."""
    began = asyncio.get_running_loop().time()
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(SETTLES_WITHIN):
            while await connection.fetchval(_LEFT):
                for replica in replicas:
                    with suppress(httpx2.TransportError):
                        await _answer_tickets(f"{replica.base}", http, history)
                await pause(_LOOK_AGAIN)
        history.settled_in = asyncio.get_running_loop().time() - began
    except TimeoutError:
        history.settled_in = None
    finally:
        connection.terminate()


async def _answer_tickets(base: str, http: httpx2.AsyncClient, history: History) -> None:
    """In a word that every kind of ticket takes; its answer counts like anybody else's."""
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
