"""Cancel hints: a cancel request reaches the run's owner before its next heartbeat reads it."""

from msgspec import Struct

from app.domain.ids import RunId, Tenant
from app.events.fanout.relay import Hint, Relay, Topic

MAX_REASON_LENGTH = 2_000


class CancelHints(Struct, frozen=True):
    """Sends cancel requests to all processes. A lost hint costs the time until the next heartbeat."""

    relay: Relay

    async def send(self, tenant: Tenant, run_id: RunId, reason: str | None) -> None:
        payload = f"{tenant}\n{run_id}\n{(reason or '')[:MAX_REASON_LENGTH]}"
        await self.relay.send_hints(Topic.CANCEL, [Hint(run_id, payload)])


def decode_cancel_hint(payload: str) -> tuple[Tenant, RunId, str | None]:
    tenant, run_id, reason = payload.split("\n", 2)
    return Tenant(tenant), RunId(run_id), reason or None
