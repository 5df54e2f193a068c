"""Answers to signals: to calls that wait, to nothing yet, and under ids that are taken."""

from typing import Any
from uuid import uuid4

import httpx2

from app.commands.tickets.signals import MAX_TICKETS_AT_ONCE
from app.domain.ids import Tenant
from app.domain.signals import MAX_KEPT_PER_KEY, Signal
from tests.support.routes import Route
from tests.surface.scenarios import answers, post
from tests.surface.stage import HOLDERS, Stage

SEND = "POST /v1/signals"


async def send(stage: Stage, invoice: str, payload: Any, id: str | None = None) -> httpx2.Response:
    body = {"id": id or str(uuid4()), "name": "payment_settled", "key": invoice, "payload": payload}
    return await post(stage, "/v1/signals", body)


async def waiting_for(stage: Stage, invoice: str) -> dict[str, Any]:
    return await stage.waiting("waiter", f'CALL paid {{"invoice": "{invoice}"}}')


@answers(f"{SEND} 200")
async def to_a_call_that_waits(stage: Stage, route: Route) -> httpx2.Response:
    invoice = str(uuid4())
    run = await waiting_for(stage, invoice)
    response = await send(stage, invoice, 80)
    [ticket] = response.json()["tickets"]
    assert (ticket["run_id"], ticket["outcome"]) == (run["run_id"], "answered")
    return response


@answers(f"{SEND} 202")
async def that_has_many_tickets_to_answer_yet(stage: Stage, route: Route) -> httpx2.Response:
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
    await stage.execute(
        "INSERT INTO signals (tenant, id, name, key, fingerprint, sent_by, status, kept_until)"
        " VALUES ($1, $2, $3, $4, $5, 'ann', 'delivering', now())",
        tenant,
        id,
        signal.name,
        invoice,
        signal.fingerprint,
    )
    await stage.execute(
        "INSERT INTO signal_tickets (tenant, signal_id, ticket, run_id, thread_id, position,"
        " outcome, waited) SELECT $1, $2, gen_random_uuid(), gen_random_uuid(),"
        " gen_random_uuid(), n, 'pending', true FROM generate_series(0, $3) n",
        tenant,
        id,
        MAX_TICKETS_AT_ONCE,
    )
    response = await send(stage, invoice, None, id)
    assert response.json()["status"] == "delivering"
    return response


@answers(f"{SEND} 409 signal_id_conflict")
async def under_an_id_that_is_taken(stage: Stage, route: Route) -> httpx2.Response:
    id = str(uuid4())
    await send(stage, "inv-1", 1, id)
    return await send(stage, "inv-1", 2, id)


@answers(f"{SEND} 422 signal_payload_mismatch")
async def that_fits_no_ticket(stage: Stage, route: Route) -> httpx2.Response:
    invoice = str(uuid4())
    await waiting_for(stage, invoice)
    return await send(stage, invoice, "eighty")


@answers(f"{SEND} 429 queue_full")
async def behind_too_many_that_are_kept(stage: Stage, route: Route) -> httpx2.Response:
    invoice = str(uuid4())
    await stage.execute(
        "INSERT INTO signals (tenant, id, name, key, fingerprint, sent_by, status, answer,"
        " kept_until) SELECT $1, gen_random_uuid()::text, 'payment_settled', $2, '', 'ann',"
        " 'kept', 'kept', now() + interval '1 hour' FROM generate_series(1, $3)",
        HOLDERS["ann"].tenant,
        invoice,
        MAX_KEPT_PER_KEY,
    )
    return await send(stage, invoice, 1)
