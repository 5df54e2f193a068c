"""How clients ask: by another way each time, again when nobody answers, and every request is kept."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx2

from app.clock import sleep
from tests.journeys.chaos.fleet import Replica
from tests.journeys.chaos.history import NOT_OURS, Answer, Hearing, History, Json, Kind, Operation
from tests.journeys.chaos.readers import EVENT_STREAM, Reader, Witness
from tests.journeys.chaos.rumours import Rumour

_TRIES = 4
_BETWEEN = 0.1
_BY_ROAD = 0.6
"""How many of all connections take the road and not the direct way."""


@dataclass(slots=True)
class World:
    """What all clients share."""

    replicas: list[Replica]
    http: httpx2.AsyncClient
    history: History
    witness: Witness
    rumour: Rumour
    listening: asyncio.TaskGroup
    now: Callable[[], float]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Nothing more is said: who listens to a thread may look for its end."""


@dataclass(frozen=True, slots=True)
class Client:
    """One program's way to the service."""

    world: World
    chance: random.Random

    def way(self) -> str | None:
        """To some replica, through its road or directly."""
        return self._way_to(self.chance.choice(self.world.replicas))

    def _way_to(self, replica: Replica) -> str | None:
        return replica.road.base if self.chance.random() < _BY_ROAD else replica.base

    async def ask(self, operation: Operation) -> None:
        """Repeat what nobody has answered, if a repetition is the same request."""
        repeatable = (
            operation.key is not None or "run_id" in operation.body or operation.kind is Kind.SIGNAL
        )
        self.world.history.operations.append(operation)
        operation.began = self.world.now()
        for _ in range(_TRIES if repeatable else 1):
            replica = self.chance.choice(self.world.replicas)
            if (base := self._way_to(replica)) is not None:
                await self._try(operation, base)
            if operation.kind is Kind.DECIDE and operation.answer is Answer.DONE:
                self.world.rumour.spread(replica)
            if operation.answer is not Answer.UNKNOWN:
                break
            await sleep(_BETWEEN)
        operation.ended = self.world.now()

    async def _try(self, operation: Operation, base: str) -> None:
        operation.tries += 1
        try:
            response = await self.world.http.post(
                base + operation.path, json=operation.body, headers=_key(operation)
            )
        except (httpx2.TransportError, TimeoutError):
            return
        operation.answered(response.status_code, _said(response))

    async def look(self, path: str) -> Json | None:
        """What stands there, if anybody says so."""
        if (base := self.way()) is None:
            return None
        try:
            response = await self.world.http.get(base + path)
        except (httpx2.TransportError, TimeoutError):
            return None
        return _said(response) if response.status_code == 200 else None

    # --- listening ----------------------------------------------------------------------------

    def listen_to_run(self, run_id: str) -> None:
        self.world.listening.create_task(self._reader(f"/v1/runs/{run_id}").follow())

    def listen_to_thread(self, thread_id: str) -> None:
        reader = self._reader(f"/v1/threads/{thread_id}")
        self.world.listening.create_task(reader.follow(self.world.over))

    async def start_and_listen(self, operation: Operation) -> None:
        """The answer is the stream; its reader goes on from where that is cut."""
        self.world.history.operations.append(operation)
        operation.began = self.world.now()
        answered = asyncio.Event()
        self.world.listening.create_task(self._listen_from_start(operation, answered))
        await answered.wait()
        operation.ended = self.world.now()

    async def _listen_from_start(self, operation: Operation, answered: asyncio.Event) -> None:
        world, base, reader = self.world, self.way(), None
        headers = EVENT_STREAM | _key(operation)
        try:
            if base is None:
                return
            operation.tries = 1
            async with world.http.stream(
                "POST", base + operation.path, json=operation.body, headers=headers
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    operation.answered(response.status_code, _said(response))
                    return
                place = response.headers["Content-Location"]
                operation.answered(200, {"run_id": place.rpartition("/")[2]})
                answered.set()
                reader = self._reader(place)
                await reader.listen(response, until_done=False)
        except (httpx2.TransportError, TimeoutError):
            pass  # cut, before it was answered or after
        finally:
            answered.set()
        if reader is not None:
            await reader.follow()

    def _reader(self, path: str) -> Reader:
        world, hearing = self.world, Hearing(path=path)
        world.history.hearings.append(hearing)
        return Reader(hearing, world.http, self, world.witness, world.now)


def _said(response: httpx2.Response) -> Json:
    """Whatever isn't JSON is no answer of ours."""
    try:
        said: Json = response.json()
    except ValueError:
        return {"code": NOT_OURS, "text": response.text[:500]}
    return said


def _key(operation: Operation) -> dict[str, str]:
    return {} if operation.key is None else {"Idempotency-Key": operation.key}
