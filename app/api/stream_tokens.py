"""Stream tokens over HTTP: for a browser's EventSource, which can't send headers."""

from datetime import timedelta
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import AliasChoices, Field, model_validator

from app.api.schemas.common import RequestModel as Body
from app.api.schemas.common import ResponseModel, Time, Uuid
from app.domain.ids import RunId, ThreadId
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep, StreamTokenSignerDep
from app.http.error_codes import error_responses
from app.queries import records

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/stream-tokens", tags=["streams"])


class StreamTokenIn(Body):
    """Exactly one of the three."""

    run_id: Uuid | None = Field(None, validation_alias=AliasChoices("run_id", "runId"))
    thread_id: Uuid | None = Field(None, validation_alias=AliasChoices("thread_id", "threadId"))
    inbox: Literal[True] | None = Field(None, description="For GET /v1/tickets/events.")

    @model_validator(mode="after")
    def _one(self) -> "StreamTokenIn":
        if [self.run_id, self.thread_id, self.inbox].count(None) != 2:
            raise ValueError("name a run_id or a thread_id, or say inbox: true; one of them")
        return self


class StreamTokenOut(ResponseModel):
    token: str
    expires_at: Time


@router.post("", status_code=201, responses=error_responses("run_not_found", "thread_not_found"))
async def make_a_stream_token(
    body: StreamTokenIn,
    request: Request,
    ctx: ContextDep,
    signer: StreamTokenSignerDep,
    principal: MayRead,
) -> StreamTokenOut:
    """A short-lived right to read one stream, for `?stream_token=`."""
    run_id = None if body.run_id is None else RunId(body.run_id)
    thread_id = None if body.thread_id is None else ThreadId(body.thread_id)
    if run_id is not None:
        await records.read_run(ctx, principal, run_id)
    elif thread_id is not None:
        await records.read_thread(ctx, principal, thread_id)
    expires_at = ctx.clock.now() + timedelta(seconds=request.app.state.stream_token_ttl)
    token = signer.sign(principal, run_id, thread_id, expires_at)
    return StreamTokenOut(token=token, expires_at=expires_at)
