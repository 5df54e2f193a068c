"""Sends the requests of clients: by a random route, repeated without an answer, recorded in the history."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx2

from app.clock import sleep
from tests.journeys.chaos.decision_notifier import DecisionNotifier
from tests.journeys.chaos.fleet import Replica
from tests.journeys.chaos.history import (
    NOT_OURS,
    Answer,
    History,
    Json,
    Kind,
    Operation,
    ReaderRecord,
)
from tests.journeys.chaos.readers import EVENT_STREAM, Reader, Witness
from tests.support.streams import WHOLE_LOG

_TRIES = 4
_RETRY_SECONDS = 0.1
_PROXY_FRACTION = 0.6
"""The share of connections that go through the faulty proxy."""


@dataclass(slots=True)
class TrialContext:
    """What all clients share."""

    replicas: list[Replica]
    http: httpx2.AsyncClient
    history: History
    witness: Witness
    decision_notifier: DecisionNotifier
    listening: asyncio.TaskGroup
    now: Callable[[], float]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when no more events come: readers of threads may then stop at the end of the log."""


@dataclass(frozen=True, slots=True)
class Client:
    """The HTTP client of one simulated user."""

    context: TrialContext
    chance: random.Random

    def base_url(self) -> str | None:
        """The URL of a random replica, or of its proxy; None while that is down."""
        return self._base_url_of(self.chance.choice(self.context.replicas))

    def _base_url_of(self, replica: Replica) -> str | None:
        return replica.proxy.base if self.chance.random() < _PROXY_FRACTION else replica.base

    async def ask(self, operation: Operation) -> None:
        """Send a request, and repeat it without an answer if it is idempotent."""
        repeatable = (
            operation.key is not None or "run_id" in operation.body or operation.kind is Kind.SIGNAL
        )
        self.context.history.operations.append(operation)
        operation.began = self.context.now()
        for _ in range(_TRIES if repeatable else 1):
            replica = self.chance.choice(self.context.replicas)
            if (base := self._base_url_of(replica)) is not None:
                await self._try(operation, base)
            if operation.kind is Kind.DECIDE and operation.answer is Answer.DONE:
                self.context.decision_notifier.notify(replica)
            if operation.answer is not Answer.UNKNOWN:
                break
            await sleep(_RETRY_SECONDS)
        operation.ended = self.context.now()

    async def _try(self, operation: Operation, base: str) -> None:
        operation.tries += 1
        try:
            response = await self.context.http.post(
                base + operation.path, json=operation.body, headers=_key(operation)
            )
        except (httpx2.TransportError, TimeoutError):
            return
        operation.answered(response.status_code, _body_of(response))

    async def get(self, path: str) -> Json | None:
        """The body of a 200, else None."""
        if (base := self.base_url()) is None:
            return None
        try:
            response = await self.context.http.get(base + path)
        except (httpx2.TransportError, TimeoutError):
            return None
        return _body_of(response) if response.status_code == 200 else None

    # --- streams ------------------------------------------------------------------------------

    def follow_run(self, run_id: str) -> None:
        self.context.listening.create_task(self._reader(f"/v1/runs/{run_id}").follow())

    def follow_thread(self, thread_id: str) -> None:
        reader = self._reader(f"/v1/threads/{thread_id}")
        self.context.listening.create_task(reader.follow(self.context.over))

    async def start_and_follow(self, operation: Operation) -> None:
        """The answer is the stream; when it is cut, a reader continues it."""
        self.context.history.operations.append(operation)
        operation.began = self.context.now()
        answered = asyncio.Event()
        self.context.listening.create_task(self._follow_from_start(operation, answered))
        await answered.wait()
        operation.ended = self.context.now()

    async def _follow_from_start(self, operation: Operation, answered: asyncio.Event) -> None:
        context, base, reader = self.context, self.base_url(), None
        headers = EVENT_STREAM | _key(operation)
        try:
            if base is None:
                return
            operation.tries = 1
            async with context.http.stream(
                "POST",
                base + operation.path,
                json=operation.body,
                headers=headers,
                params=WHOLE_LOG,
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    operation.answered(response.status_code, _body_of(response))
                    return
                path = response.headers["Content-Location"]
                operation.answered(200, {"id": path.rpartition("/")[2]})
                answered.set()
                reader = self._reader(path)
                await reader.listen(response, until_done=False)
        except (httpx2.TransportError, TimeoutError):
            pass  # cut, before or after the answer
        finally:
            answered.set()
        if reader is not None:
            await reader.follow()

    def _reader(self, path: str) -> Reader:
        context, reader_record = self.context, ReaderRecord(path=path)
        context.history.reader_records.append(reader_record)
        return Reader(reader_record, context.http, self, context.witness, context.now)


def _body_of(response: httpx2.Response) -> Json:
    """The JSON of a response; a body that isn't JSON gets the code `NOT_OURS`."""
    try:
        body: Json = response.json()
    except ValueError:
        return {"code": NOT_OURS, "text": response.text[:500]}
    return body


def _key(operation: Operation) -> dict[str, str]:
    return {} if operation.key is None else {"Idempotency-Key": operation.key}
