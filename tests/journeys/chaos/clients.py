"""What people do all day: start, listen, answer tickets, say more, cancel and try again, by whatever way."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import httpx2

from app.clock import pause
from tests.journeys.chaos.fleet import Replica
from tests.journeys.chaos.history import Answer, Hearing, History, Json, Kind, Operation
from tests.journeys.chaos.prompts import prompt
from tests.journeys.chaos.readers import EVENT_STREAM, Reader, Witness
from tests.journeys.chaos.rumours import Rumour

_TRIES = 4
_ON_ACTIVE = ("enqueue", "enqueue", "enqueue", "steer", "steer", "interrupt", "reject")
_MODES = ("queue", "steer", "steer", "interrupt_then_queue")
_ANSWERS: dict[str, Json] = {
    "approve": {},
    "edit": {},
    "respond": {"result": "as somebody said"},
    "reject": {"reason": "Not today."},
    "cancel": {"reason": "Never mind."},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How often people do what, what they ask whom, and how long at most they pause between."""

    acts: Mapping[str, int] = field(
        default_factory=lambda: {"start": 8, "decide": 6, "say_more": 3, "cancel": 1, "retry": 1}
    )
    agents: Sequence[str] = ("worker", "worker", "worker", "many_hands", "patient", "lecturer")
    prompt: Callable[[random.Random, str], str] = prompt
    longest_pause: float = 0.4


@dataclass(slots=True)
class World:
    """What all people share."""

    replicas: list[Replica]
    http: httpx2.AsyncClient
    history: History
    witness: Witness
    rumour: Rumour
    listening: asyncio.TaskGroup
    now: Callable[[], float]


@dataclass(slots=True)
class Person:
    """One client program: one thing at a time, and as many streams as it has runs."""

    name: str
    world: World
    habits: Habits
    chance: random.Random
    runs: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    _count: int = 0

    async def live(self, over: asyncio.Event) -> None:
        acts = self.habits.acts
        while not over.is_set():
            [act] = self.chance.choices(list(acts), list(acts.values()))
            await getattr(self, act)()
            await pause(self.chance.uniform(0.0, self.habits.longest_pause))

    # --- acts ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Under a key, with an id of the client's own, or without either, which nobody may repeat."""
        mark = self._mark()
        thread_id = self._thread()
        on_active = self.chance.choice(_ON_ACTIVE)
        body: Json = {
            "agent_id": self.chance.choice(self.habits.agents),
            "thread_id": thread_id,
            "on_active": on_active,
            "metadata": {"mark": mark},
            "messages": [_message(mark, self.habits.prompt(self.chance, mark))],
        }
        identified = self.chance.choice(("key", "key", "key", "id", ""))
        if identified == "id" and on_active != "steer":
            body["run_id"] = self._new_id()
        key = mark if identified == "key" else None
        operation = Operation(mark=mark, kind=Kind.START, path="/v1/runs", body=body, key=key)
        if self.chance.random() < 0.3:
            await self._start_and_listen(operation)
        else:
            await self._ask(operation)
        if operation.answer is Answer.DONE:
            self._know(operation.said["run_id"])

    async def decide(self) -> None:
        """Answer a ticket; now and then twice, or with somebody who answers otherwise at the same time."""
        found = await self._look("/v1/tickets?status=open&limit=20")
        if found is None or not found["items"]:
            return
        ticket = self.chance.choice(found["items"])
        first = self._decision(ticket)
        match self.chance.choice(("once", "once", "again", "twice", "against")):
            case "again":
                await self._ask(first)
                await self._ask(_again(first))
            case "twice":
                await asyncio.gather(self._ask(first), self._ask(_again(first)))
            case "against":
                await asyncio.gather(self._ask(first), self._ask(self._decision(ticket)))
            case _:
                await self._ask(first)

    async def say_more(self) -> None:
        """To a run or its thread: steer it, queue behind it, or have it make way."""
        if not self.runs:
            return
        mark, run_id = self._mark(), self.runs[-1]
        body = {
            "mode": self.chance.choice(_MODES),
            "messages": [_message(mark, self.habits.prompt(self.chance, mark))],
        }
        path = f"/v1/runs/{run_id}/inputs"
        if self.threads and self.chance.random() < 0.3:
            path = f"/v1/threads/{self.chance.choice(self.threads)}/messages"
        operation = Operation(mark=mark, kind=Kind.INPUT, path=path, body=body, key=mark)
        await self._ask(operation)
        if operation.answer is Answer.DONE:
            self._know(operation.said["run_id"])

    async def cancel(self) -> None:
        if not self.runs:
            return
        mark = self._mark()
        path = f"/v1/runs/{self.chance.choice(self.runs[-5:])}/cancel"
        if self.chance.random() < 0.5:
            path += "?wait=1"
        await self._ask(
            Operation(mark=mark, kind=Kind.CANCEL, path=path, body={"reason": mark}, key=mark)
        )

    async def retry(self) -> None:
        """Whatever the run's state is: most of them say no."""
        if not self.runs:
            return
        mark = self._mark()
        path = f"/v1/runs/{self.chance.choice(self.runs[-5:])}/retry"
        operation = Operation(mark=mark, kind=Kind.RETRY, path=path, body={}, key=mark)
        await self._ask(operation)
        if operation.answer is Answer.DONE:
            self._know(operation.said["run_id"])

    # --- asking -------------------------------------------------------------------------------

    def way(self) -> str | None:
        """To some replica, through its road or directly."""
        return self._way_to(self.chance.choice(self.world.replicas))

    def _way_to(self, replica: Replica) -> str | None:
        return replica.road.base if self.chance.random() < 0.6 else replica.base

    async def _ask(self, operation: Operation) -> None:
        """Repeat what nobody has answered, if a repetition is the same request."""
        repeatable = operation.key is not None or "run_id" in operation.body
        self.world.history.operations.append(operation)
        operation.began = self.world.now()
        for _ in range(_TRIES if repeatable else 1):
            replica = self.chance.choice(self.world.replicas)
            if (base := self._way_to(replica)) is not None:
                operation.tries += 1
                try:
                    response = await self.world.http.post(
                        base + operation.path, json=operation.body, headers=_key(operation)
                    )
                except (httpx2.TransportError, TimeoutError):
                    pass
                else:
                    operation.answered(response.status_code, response.json())
                    if operation.kind is Kind.DECIDE and operation.answer is Answer.DONE:
                        self.world.rumour.spread(replica)
                    if operation.answer is not Answer.UNKNOWN:
                        break
            await pause(0.1)
        operation.ended = self.world.now()

    async def _start_and_listen(self, operation: Operation) -> None:
        """The answer is the stream; its reader goes on from where that is cut."""
        self.world.history.operations.append(operation)
        operation.began = self.world.now()
        answered = asyncio.Event()
        self.world.listening.create_task(self._listen_from_start(operation, answered))
        await answered.wait()
        operation.ended = self.world.now()

    async def _listen_from_start(self, operation: Operation, answered: asyncio.Event) -> None:
        world, base = self.world, self.way()
        hearing = None
        try:
            if base is None:
                return
            operation.tries = 1
            async with world.http.stream(
                "POST",
                base + operation.path,
                json=operation.body,
                headers=EVENT_STREAM | _key(operation),
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    operation.answered(response.status_code, response.json())
                    return
                run_id = response.headers["Content-Location"].rpartition("/")[2]
                operation.answered(200, {"run_id": run_id})
                answered.set()
                hearing = self._hearing(run_id)
                await self._reader(hearing).listen(response, until_done=False)
        except (httpx2.TransportError, TimeoutError):
            pass
        finally:
            answered.set()
        if hearing is not None:
            await self._reader(hearing).follow()

    async def _look(self, path: str) -> Json | None:
        if (base := self.way()) is None:
            return None
        try:
            response = await self.world.http.get(base + path)
        except (httpx2.TransportError, TimeoutError):
            return None
        body: Json = response.json()
        return body if response.status_code == 200 else None

    def _know(self, run_id: str) -> None:
        if run_id not in self.runs:
            self.runs.append(run_id)
            if all(hearing.run_id != run_id for hearing in self.world.history.hearings):
                hearing = self._hearing(run_id)
                self.world.listening.create_task(self._reader(hearing).follow())

    def _hearing(self, run_id: str) -> Hearing:
        hearing = Hearing(run_id=run_id)
        self.world.history.hearings.append(hearing)
        return hearing

    def _reader(self, hearing: Hearing) -> Reader:
        world = self.world
        return Reader(hearing, world.http, self, world.witness, world.now)

    # --- what is asked ------------------------------------------------------------------------

    def _decision(self, ticket: Json) -> Operation:
        mark = self._mark()
        action = self.chance.choice(ticket["allowed_actions"])
        answer = {"ticket_id": ticket["id"], "action": action, **_ANSWERS[action]}
        if action == "edit":
            answer["arguments"] = {**ticket["arguments"], "what": f"{mark}/edited"}
        if self.chance.random() < 0.7:
            answer["decision_id"] = mark
        path = f"/v1/runs/{ticket['run_id']}/decisions"
        return Operation(mark=mark, kind=Kind.DECIDE, path=path, body={"decisions": [answer]})

    def _mark(self) -> str:
        self._count += 1
        return f"{self.name}.{self._count}"

    def _thread(self) -> str:
        if len(self.threads) < 2 or self.chance.random() < 0.2:
            self.threads = [*self.threads[-1:], self._new_id()]
        return self.chance.choice(self.threads)

    def _new_id(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128), version=4))


def _message(mark: str, text: str) -> Json:
    return {"role": "user", "content": f"[{mark}] {text}"}


def _key(operation: Operation) -> dict[str, str]:
    return {} if operation.key is None else {"Idempotency-Key": operation.key}


def _again(operation: Operation) -> Operation:
    """The same request as one of its own."""
    return Operation(
        mark=operation.mark, kind=operation.kind, path=operation.path, body=operation.body
    )
