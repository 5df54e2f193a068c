"""Responses to signals: for waiting calls, without a call, and with taken ids."""

from typing import Any
from uuid import uuid4

import httpx2

from app.commands.tickets.deliver_signal import MAX_TICKETS_AT_ONCE
from app.domain.ids import Tenant
from app.domain.signals import MAX_KEPT_PER_KEY, Signal
from tests.support.routes import Route
from tests.surface.scenarios import answers, post
from tests.surface.servers import HOLDERS, Servers

SEND = "POST /v1/signals"


async def send(
    servers: Servers, invoice: str, payload: Any, id: str | None = None
) -> httpx2.Response:
    body = {
        "signal_id": id or str(uuid4()),
        "name": "payment_settled",
        "key": invoice,
        "payload": payload,
    }
    return await post(servers, "/v1/signals", body)


async def waiting_for(servers: Servers, invoice: str) -> dict[str, Any]:
    return await servers.waiting("waiter", f'CALL paid {{"invoice": "{invoice}"}}')


@answers(f"{SEND} 200")
async def to_a_waiting_call(servers: Servers, route: Route) -> httpx2.Response:
    invoice = str(uuid4())
    run = await waiting_for(servers, invoice)
    response = await send(servers, invoice, 80)
    [ticket] = response.json()["tickets"]
    assert (ticket["run_id"], ticket["outcome"]) == (run["id"], "answered")
    return response


@answers(f"{SEND} 202")
async def with_many_pending_tickets(servers: Servers, route: Route) -> httpx2.Response:
    id, invoice = str(uuid4()), str(uuid4())
    tenant = HOLDERS["ann"].tenant
    signal = Signal(
        tenant=Tenant(tenant),
        id=id,
        name="payment_settled",
        key=invoice,
        payload=None,
        sent_by="ann",
    )
    await servers.execute(
        "INSERT INTO signals (tenant, id, name, key, fingerprint, sent_by, status, kept_until)"
        " VALUES ($1, $2, $3, $4, $5, 'ann', 'delivering', now())",
        tenant,
        id,
        signal.name,
        invoice,
        signal.fingerprint,
    )
    await servers.execute(
        "INSERT INTO signal_tickets (tenant, signal_id, ticket, run_id, thread_id, position,"
        " outcome, waited) SELECT $1, $2, gen_random_uuid(), gen_random_uuid(),"
        " gen_random_uuid(), n, 'pending', true FROM generate_series(0, $3) n",
        tenant,
        id,
        MAX_TICKETS_AT_ONCE,
    )
    response = await send(servers, invoice, None, id)
    assert response.json()["status"] == "delivering"
    return response


@answers(f"{SEND} 409 signal_id_conflict")
async def with_a_taken_id(servers: Servers, route: Route) -> httpx2.Response:
    id = str(uuid4())
    await send(servers, "inv-1", 1, id)
    return await send(servers, "inv-1", 2, id)


@answers(f"{SEND} 422 signal_payload_mismatch")
async def that_fits_no_ticket(servers: Servers, route: Route) -> httpx2.Response:
    invoice = str(uuid4())
    await waiting_for(servers, invoice)
    return await send(servers, invoice, "eighty")


@answers(f"{SEND} 429 queue_full")
async def behind_too_many_stored_signals(servers: Servers, route: Route) -> httpx2.Response:
    invoice = str(uuid4())
    await servers.execute(
        "INSERT INTO signals (tenant, id, name, key, fingerprint, sent_by, status, response_status,"
        " kept_until) SELECT $1, gen_random_uuid()::text, 'payment_settled', $2, '', 'ann',"
        " 'kept', 'kept', now() + interval '1 hour' FROM generate_series(1, $3)",
        HOLDERS["ann"].tenant,
        invoice,
        MAX_KEPT_PER_KEY,
    )
    return await send(servers, invoice, 1)
