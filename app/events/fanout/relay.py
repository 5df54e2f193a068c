"""Hints to other processes: what was committed, or at least that something was. A wire carries them.

A hint may be lost, late or doubled, and a wire may be away for as long as it likes: the log is the
truth, and whoever follows a thread looks there now and then.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import structlog

from app import telemetry
from app.clock import Clock, sleep
from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import compact
from app.events.fanout.hub import Hub
from app.events.sse_encoding import EventBatch
from app.storage.events.event_log import EventEntry, heads_of
from app.storage.postgres.database import Database

RETRY_INTERVAL_SECONDS = 0.5
_MAX_WAITING_HINTS = 1_000

log = structlog.get_logger(__name__)


class Topic(StrEnum):
    EVENTS = "events"
    CANCEL = "cancel"
    """Somebody wants a run to end: whoever executes it needn't wait for its next heartbeat."""


@dataclass(frozen=True, slots=True)
class Hint:
    """One message to all processes, the sender among them. `about` is what it concerns: a thread, a run."""

    about: str
    payload: str


Handler: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayHealth:
    """Whether hints of others arrive, and since when it is so."""

    transport: str
    is_connected: bool
    since: datetime


class TransportUnavailable(Exception):
    """Nothing is carried now; the same may work in a moment."""


class Transport(Protocol):
    """What carries hints between processes; it raises nothing but `WireAway`."""

    @property
    def name(self) -> str: ...

    @property
    def max_payload_bytes(self) -> int:
        """Bytes that a hint may have."""

    async def send(self, topic: Topic, hints: Sequence[Hint]) -> None: ...

    async def listen(
        self, handlers: Mapping[Topic, Handler], *, on_connected: Callable[[], None]
    ) -> None:
        """Hand over what arrives until the connection is lost. `on_connected` runs whenever something
        may have been missed until now: once listening has begun, at least."""


class Relay:
    """Sends what this process commits, many hints together, and hears what the others do."""

    def __init__(
        self, database: Database, hub: Hub, me: WorkerId, wire: Transport, clock: Clock
    ) -> None:
        self._database = database
        self._hub = hub
        self._me = me
        self._mine = f'{{"o":{compact(me)},'
        self._wire = wire
        self._clock = clock
        self._since = clock.now()
        self._waiting: list[EventBatch] = []
        self._wake = asyncio.Event()
        self.hears = asyncio.Event()
        """Set while hints of others arrive."""

    @property
    def health(self) -> RelayHealth:
        return RelayHealth(
            transport=self._wire.name, is_connected=self.hears.is_set(), since=self._since
        )

    def announce(self, batch: EventBatch) -> None:
        """Never waits: when too much does, readers elsewhere find it in the log."""
        if len(self._waiting) < _MAX_WAITING_HINTS:
            self._waiting.append(batch)
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            hints = [Hint(batch.thread_id, self._payload(batch)) for batch in waiting]
            await self.send_hints(Topic.EVENTS, hints)

    async def send_hints(self, topic: Topic, hints: Sequence[Hint]) -> None:
        """Send hints, or lose them: what they are about is found without them."""
        try:
            await self._wire.send(topic, hints)
        except TransportUnavailable as error:
            telemetry.hints_lost.labels(wire=self._wire.name).inc(len(hints))
            log.debug("hints_lost", count=len(hints), error=str(error))

    async def listen(self, others: Mapping[Topic, Handler]) -> None:
        """Hear all topics, again and again, whatever becomes of the wire; says when that changes."""
        handlers = {Topic.EVENTS: self.receive_events, **others}
        is_away = False
        gauge = telemetry.relay_connected.labels(wire=self._wire.name)

        def begin() -> None:
            nonlocal is_away
            if is_away:
                log.info("relay_is_back", wire=self._wire.name)
            is_away = False
            gauge.set(1)
            if not self.hears.is_set():
                self._since = self._clock.now()
            self._hub.hint_all()
            self.hears.set()

        while True:
            error = "the connection was lost"
            try:
                await self._wire.listen(handlers, on_connected=begin)
            except TransportUnavailable as away:
                error = str(away)
            gauge.set(0)
            if self.hears.is_set():
                self._since = self._clock.now()
            self.hears.clear()
            if not is_away:
                log.warning(
                    "relay_is_away",
                    wire=self._wire.name,
                    error=error,
                    remark="what other processes say is read from the log meanwhile",
                )
            is_away = True
            await sleep(RETRY_INTERVAL_SECONDS)

    def receive_events(self, payload: str) -> None:
        """A hint has arrived; our own come back too."""
        if payload.startswith(self._mine):
            return
        body = json.loads(payload)
        batch = _batch_of(body)
        if batch is None:
            self._hub.hint((Tenant(body["t"]), ThreadId(body["th"])))
        else:
            self._hub.publish(batch)

    async def catch_up(self) -> None:
        """Ask the log itself whether a followed thread has gone on unheard."""
        followed = self._hub.followed()
        for start in range(0, len(followed), 1000):
            async with self._database.reading() as connection:
                heads = await heads_of(connection, followed[start : start + 1000])
            self._hub.hint_missed(heads)

    def _payload(self, batch: EventBatch) -> str:
        body: dict[str, Any] = {
            "o": self._me,
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
        return whole if len(whole.encode()) <= self._wire.max_payload_bytes else compact(body)


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
