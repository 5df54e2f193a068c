"""The relay: hints to other processes about committed events, over a transport.

A hint carries the events, or only the event number if they are too large. It may be lost, late or doubled,
and the transport may be unavailable: the log is the truth, and followers read it periodically.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import structlog
from msgspec import Struct

from app import telemetry
from app.clock import Clock, sleep
from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import compact
from app.events.fanout.hub import Hub
from app.events.sse_encoding import EventBatch
from app.storage.events.event_log import EventEntry, heads_of
from app.storage.postgres.database import Database

RETRY_INTERVAL_SECONDS = 0.5
HINT_INTERVAL_SECONDS = 0.005
"""The least time between two messages with hints. Hints that come meanwhile are sent together."""
_MAX_WAITING_HINTS = 1_000

log = structlog.get_logger(__name__)


class Topic(StrEnum):
    EVENTS = "events"
    CANCEL = "cancel"
    """A run's cancel was requested: its owner needn't wait for its next heartbeat."""


class Hint(Struct, frozen=True):
    """One message to all processes, the sender included. `about` is the id of the thread or run."""

    about: str
    payload: str


Handler: TypeAlias = Callable[[str], None]


class RelayHealth(Struct, frozen=True, kw_only=True):
    """Whether hints of other processes arrive, and since when that is so."""

    transport: str
    is_connected: bool
    since: datetime


class TransportUnavailable(Exception):
    """The transport isn't connected; a retry may succeed."""


class Transport(Protocol):
    """Carries hints between processes; raises nothing but `TransportUnavailable`."""

    @property
    def name(self) -> str: ...

    @property
    def max_payload_bytes(self) -> int:
        """The size of the largest hint."""

    async def send(self, topic: Topic, hints: Sequence[Hint]) -> None: ...

    async def listen(
        self, handlers: Mapping[Topic, Handler], *, on_connected: Callable[[], None]
    ) -> None:
        """Pass arriving hints to their handler until the connection is lost. Calls `on_connected` when
        listening begins, and whenever hints may have been missed."""


class Relay:
    """Sends hints about this process's commits, many together, and receives those of other processes."""

    def __init__(
        self, database: Database, hub: Hub, worker_id: WorkerId, transport: Transport, clock: Clock
    ) -> None:
        self._database = database
        self._hub = hub
        self._worker_id = worker_id
        self._own_prefix = f'{{"o":{compact(worker_id)},'
        self._transport = transport
        self._clock = clock
        self._since = clock.now()
        self._queued: list[EventBatch] = []
        self._wake = asyncio.Event()
        self._has_others = True
        self.connected = asyncio.Event()
        """Set while hints of other processes arrive."""

    @property
    def health(self) -> RelayHealth:
        return RelayHealth(
            transport=self._transport.name, is_connected=self.connected.is_set(), since=self._since
        )

    def announce(self, batch: EventBatch) -> None:
        """Queue a hint without waiting. If too many are queued it is dropped: followers read the log.

        No hint is sent while this process is the only one.
        """
        if self._has_others and len(self._queued) < _MAX_WAITING_HINTS:
            self._queued.append(batch)
            self._wake.set()

    def set_has_others(self, has_others: bool) -> None:
        """Whether other processes live. A process that has just begun is known a heartbeat later; what it
        missed before, its followers find with the next hint or in the log."""
        self._has_others = has_others

    async def run(self) -> None:
        now = asyncio.get_running_loop().time
        sent_at = -HINT_INTERVAL_SECONDS
        while True:
            await self._wake.wait()
            if (early := sent_at + HINT_INTERVAL_SECONDS - now()) > 0:
                await sleep(early)
            sent_at = now()
            self._wake.clear()
            waiting, self._queued = self._queued, []
            hints = [Hint(batch.thread_id, self._payload(batch)) for batch in waiting]
            await self.send_hints(Topic.EVENTS, hints)

    async def send_hints(self, topic: Topic, hints: Sequence[Hint]) -> None:
        """Send hints; if the transport is unavailable they are lost."""
        try:
            await self._transport.send(topic, hints)
        except TransportUnavailable as error:
            telemetry.hints_lost.labels(transport=self._transport.name).inc(len(hints))
            log.debug("hints_lost", count=len(hints), error=str(error))

    async def listen(self, others: Mapping[Topic, Handler]) -> None:
        """Receive hints of all topics, reconnect after a loss, and log each change."""
        handlers = {Topic.EVENTS: self.receive_events, **others}
        is_disconnected = False
        gauge = telemetry.relay_connected.labels(transport=self._transport.name)

        def begin() -> None:
            nonlocal is_disconnected
            if is_disconnected:
                log.info("relay_reconnected", transport=self._transport.name)
            is_disconnected = False
            gauge.set(1)
            if not self.connected.is_set():
                self._since = self._clock.now()
            self._hub.hint_all()
            self.connected.set()

        while True:
            error = "the connection was lost"
            try:
                await self._transport.listen(handlers, on_connected=begin)
            except TransportUnavailable as unavailable:
                error = str(unavailable)
            gauge.set(0)
            if self.connected.is_set():
                self._since = self._clock.now()
            self.connected.clear()
            if not is_disconnected:
                log.warning(
                    "relay_disconnected",
                    transport=self._transport.name,
                    error=error,
                    remark="events of other processes are read from the log meanwhile",
                )
            is_disconnected = True
            await sleep(RETRY_INTERVAL_SECONDS)

    def receive_events(self, payload: str) -> None:
        """Handle a hint; this process's own hints are ignored."""
        if payload.startswith(self._own_prefix):
            return
        body = json.loads(payload)
        batch = _batch_of(body)
        if batch is None:
            self._hub.hint((Tenant(body["t"]), ThreadId(body["th"])))
        else:
            self._hub.publish(batch)

    async def catch_up(self) -> None:
        """Read the heads of followed threads, to find events whose hint was lost."""
        followed = self._hub.followed()
        for start in range(0, len(followed), 1000):
            async with self._database.reading_by_key() as connection:
                heads = await heads_of(connection, followed[start : start + 1000])
            self._hub.hint_missed(heads)

    def _payload(self, batch: EventBatch) -> str:
        body: dict[str, Any] = {
            "o": self._worker_id,
            "t": batch.tenant,
            "th": batch.thread_id,
            "f": batch.first_seq,
            "l": batch.last_seq,
        }
        whole = compact(
            {
                **body,
                "r": batch.run_id,
                "ts": batch.ts.isoformat(),
                "e": [[one.step, one.event_type, one.body] for one in batch.entries],
            }
        )
        return whole if len(whole.encode()) <= self._transport.max_payload_bytes else compact(body)


def _batch_of(body: dict[str, Any]) -> EventBatch | None:
    if "e" not in body:
        return None
    return EventBatch(
        Tenant(body["t"]),
        ThreadId(body["th"]),
        RunId(body["r"]),
        body["f"],
        [EventEntry(step, event_type, text) for step, event_type, text in body["e"]],
        datetime.fromisoformat(body["ts"]),
    )
