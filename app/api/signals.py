"""Signals over HTTP: events from outside, for the calls that wait for them."""

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import Field, field_validator

from app.api.schemas.common import JsonValue, RequestModel, ResponseModel, Str, Time
from app.commands.tickets import signals
from app.commands.tickets.signals import NewSignal
from app.domain.json_values import compact
from app.domain.signals import (
    MAX_ID_CHARACTERS,
    MAX_KEY_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_PAYLOAD_BYTES,
    SignalOutcome,
    SignalStatus,
    SignalTicket,
    StoredSignal,
)
from app.http.access import AuthorizedRoute, MaySignal
from app.http.deps import ContextDep
from app.http.error_codes import error_responses

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/signals", tags=["signals"])


class SignalIn(RequestModel):
    """An event. Calls wait for its name and key; `id` makes it safe to send again."""

    id: Str = Field(
        min_length=1,
        max_length=MAX_ID_CHARACTERS,
        description="Your id for this signal: the same again is delivered once and answered the same.",
    )
    name: Str = Field(min_length=1, max_length=MAX_NAME_CHARACTERS)
    key: Str = Field(
        min_length=1,
        max_length=MAX_KEY_CHARACTERS,
        description="Which one is meant, such as the number of an invoice.",
    )
    payload: JsonValue = Field(
        None, description=f"What the call gets: JSON, at most {MAX_PAYLOAD_BYTES} bytes."
    )

    @field_validator("payload")
    @classmethod
    def _is_small(cls, value: object) -> object:
        if len(compact(value).encode()) > MAX_PAYLOAD_BYTES:
            raise ValueError(f"is larger than {MAX_PAYLOAD_BYTES} bytes; send a reference instead")
        return value


class SignalTicketOut(ResponseModel):
    """A ticket that waited for the signal, and what came of it."""

    id: str
    run_id: str
    thread_id: str
    outcome: Literal[
        "pending", "answered", "payload_mismatch", "already_decided", "expired", "void"
    ]
    problem: str | None = Field(description="Why the payload doesn't fit the ticket's schema.")


class SignalOut(ResponseModel):
    """`answered`: at least one ticket has it. `kept`: no ticket has, so the next one that fits gets it.
    `delivering`: tickets are still being answered; send the same again to see what came of it."""

    id: str
    name: str
    key: str
    status: Literal["delivering", "kept", "answered"]
    tickets: list[SignalTicketOut] = Field(
        description="Those that waited when it was sent, the oldest first."
    )
    kept_until: Time | None = Field(description="How long a kept signal waits for a ticket.")


@router.post(
    "",
    responses={
        202: {"model": SignalOut, "description": "Stored; some tickets are still to be answered"},
        **error_responses("signal_id_conflict", "signal_payload_mismatch", "queue_full"),
    },
)
async def send_a_signal(
    body: SignalIn, ctx: ContextDep, principal: MaySignal, response: Response
) -> SignalOut:
    """Answer each call of the tenant that waits for this name and key, once per `id`. Without such a call
    the signal is kept for the next one. An answer of 200 or 202 means that the signal can't be lost."""
    new = NewSignal(id=body.id, name=body.name, key=body.key, payload=body.payload)
    sent = signal_out(await signals.send(ctx, principal, new))
    if sent.status == SignalStatus.DELIVERING.value:
        response.status_code = 202
    return sent


def signal_out(stored: StoredSignal) -> SignalOut:
    signal, status = stored.signal, stored.answer or SignalStatus.DELIVERING
    return SignalOut(
        id=signal.id,
        name=signal.name,
        key=signal.key,
        status=status.value,
        tickets=[_ticket_out(each) for each in stored.tickets],
        kept_until=stored.kept_until if status is SignalStatus.KEPT else None,
    )


def _ticket_out(met: SignalTicket) -> SignalTicketOut:
    outcome: SignalOutcome = met.outcome
    return SignalTicketOut(
        id=met.ticket,
        run_id=met.run_id,
        thread_id=met.thread_id,
        outcome=outcome.value,
        problem=met.problem,
    )
