"""Hints to other processes over NOTIFY: what was committed, or at least that something was."""

import asyncio
import json
from datetime import datetime
from typing import Any

import structlog

from app.domain.ids import RunId, Tenant, ThreadId, WorkerId
from app.domain.json_values import compact
from app.events.frames import Batch
from app.events.hub import Hub
from app.storage.database import DATABASE_AWAY, Database
from app.storage.events import Entry, heads_of
from app.storage.notifications import LARGEST_PAYLOAD, notify

CHANNEL = "holdfast_events"
_MOST_WAITING = 1_000

log = structlog.get_logger(__name__)


class NotifyRelay:
    """Sends what this process commits, in statements that write nothing; many hints go together."""

    def __init__(self, database: Database, hub: Hub, me: WorkerId) -> None:
        self._database = database
        self._hub = hub
        self._me = me
        self._waiting: list[Batch] = []
        self._wake = asyncio.Event()

    def announce(self, batch: Batch) -> None:
        """Never waits: when too much does, readers elsewhere find it in the log."""
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append(batch)
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            payloads = [self._payload(batch) for batch in waiting]
            try:
                await notify(self._database.hot, CHANNEL, payloads)
            except DATABASE_AWAY as error:
                log.debug("hints_lost", count=len(payloads), error=type(error).__name__)

    def heard(self, payload: str) -> None:
        """A hint has arrived; our own come back too."""
        body = json.loads(payload)
        if body["o"] == self._me:
            return
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
            self._hub.hint_behind(heads)

    def _payload(self, batch: Batch) -> str:
        body: dict[str, Any] = {"o": self._me, "t": batch.tenant, "th": batch.thread_id}
        whole = compact(
            {
                **body,
                "r": batch.run_id,
                "f": batch.first_seq,
                "ts": batch.ts.isoformat(),
                "e": [[one.step, one.event_type, one.body] for one in batch.entries],
            }
        )
        return whole if len(whole.encode()) <= LARGEST_PAYLOAD else compact(body)


def _batch_of(body: dict[str, Any]) -> Batch | None:
    if "e" not in body:
        return None
    return Batch(
        Tenant(body["t"]),
        ThreadId(body["th"]),
        RunId(body["r"]),
        body["f"],
        [Entry(step, event_type, text) for step, event_type, text in body["e"]],
        datetime.fromisoformat(body["ts"]),
    )
