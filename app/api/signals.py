"""Routes of signals: external events that tool calls wait for."""

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import Field, field_validator

from app.api.schemas.common import JsonValue, RequestModel, ResponseModel, Str, Time
from app.commands.tickets.send_signal import NewSignal, send
from app.domain.json_values import compact
from app.domain.signals import (
    MAX_ID_CHARACTERS,
    MAX_KEY_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_PAYLOAD_BYTES,
    SignalStatus,
    StoredSignal,
)
from app.http.access import AuthorizedRoute, MaySignal
from app.http.deps import ContextDep
from app.http.error_codes import error_responses

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/signals", tags=["signals"])


class SignalIn(RequestModel):
    """An external event. Tickets of kind `event` wait for its name and key."""

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "signal_id": "evt_81",
                    "name": "invoice_paid",
                    "key": "INV-7",
                    "payload": {"amount": 80},
                }
            ]
        }
    }

    signal_id: Str = Field(
        min_length=1,
        max_length=MAX_ID_CHARACTERS,
        description="Your id for the signal. The same signal again is delivered once.",
    )
    name: Str = Field(min_length=1, max_length=MAX_NAME_CHARACTERS)
    key: Str = Field(
        min_length=1,
        max_length=MAX_KEY_CHARACTERS,
        description="Key of the event, such as an invoice number.",
    )
    payload: JsonValue = Field(
        None, description=f"Result of the waiting calls: JSON of at most {MAX_PAYLOAD_BYTES} bytes."
    )

    @field_validator("payload")
    @classmethod
    def _is_small(cls, value: object) -> object:
        if len(compact(value).encode()) > MAX_PAYLOAD_BYTES:
            raise ValueError(f"is larger than {MAX_PAYLOAD_BYTES} bytes; send a reference instead")
        return value


class SignalTicketOut(ResponseModel):
    """A ticket that waited for the signal, and its outcome."""

    id: str = Field(validation_alias="ticket")
    run_id: str
    thread_id: str
    outcome: Literal[
        "pending", "answered", "payload_mismatch", "already_decided", "expired", "void"
    ]
    problem: str | None = Field(
        description="Why the payload doesn't match the ticket's schema; null if it does."
    )


class SignalOut(ResponseModel):
    """A signal. `answered`: it answered at least one ticket. `kept`: it answers the next ticket that waits for
    it. `delivering`: tickets are still being answered; send it again to get the result."""

    id: str
    name: str
    key: str
    status: Literal["delivering", "kept", "answered"]
    tickets: list[SignalTicketOut] = Field(
        description="Tickets that waited when it was sent, oldest first."
    )
    kept_until: Time | None = Field(
        description="Until when a `kept` signal waits for a ticket; null for others."
    )


@router.post(
    "",
    responses={
        202: {"model": SignalOut, "description": "Stored; some tickets are still being answered"},
        **error_responses("signal_id_conflict", "signal_payload_mismatch", "queue_full"),
    },
)
async def send_signal(
    body: SignalIn, ctx: ContextDep, principal: MaySignal, response: Response
) -> SignalOut:
    """Answer all tickets of the tenant that wait for this name and key, once per `signal_id`. Without any, the signal
    is kept for the next one. After 200 or 202 the signal is durable."""
    new = NewSignal(id=body.signal_id, name=body.name, key=body.key, payload=body.payload)
    sent = signal_out(await send(ctx, principal, new))
    if sent.status == SignalStatus.DELIVERING.value:
        response.status_code = 202
    return sent


def signal_out(stored: StoredSignal) -> SignalOut:
    signal, status = stored.signal, stored.response_status or SignalStatus.DELIVERING
    return SignalOut(
        id=signal.id,
        name=signal.name,
        key=signal.key,
        status=status.value,
        tickets=[SignalTicketOut.model_validate(each) for each in stored.tickets],
        kept_until=stored.kept_until if status is SignalStatus.KEPT else None,
    )
