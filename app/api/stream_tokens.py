"""Route of stream tokens, for a browser's EventSource, which can't send headers."""

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import Field, WithJsonSchema, model_validator

from app.api.schemas.common import ResponseModel, Time, Uuid
from app.api.schemas.thread_names import ThreadNamed
from app.domain.ids import RunId
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep, StreamTokenSignerDep
from app.http.error_codes import error_responses
from app.queries import records

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/stream-tokens", tags=["stream-tokens"])


class StreamTokenIn(ThreadNamed):
    """The stream to open: that of a run, of a thread, or of all tickets."""

    model_config = {"json_schema_extra": {"examples": [{"inbox": True}]}}

    run_id: Uuid | None = Field(None)
    inbox: Annotated[Literal[True] | None, WithJsonSchema({"type": "boolean", "const": True})] = (
        Field(None, description="The stream GET /v1/tickets/events.")
    )

    @model_validator(mode="after")
    def _one(self) -> "StreamTokenIn":
        if [self.run_id, self.thread_id or self.thread_key, self.inbox].count(None) != 2:
            raise ValueError(
                "send exactly one of `run_id`, `thread_id`, `thread_key` and `inbox: true`"
            )
        return self


class StreamTokenOut(ResponseModel):
    """A stream token."""

    token: str
    expires_at: Time


@router.post("", status_code=201, responses=error_responses("run_not_found", "thread_not_found"))
async def create_stream_token(
    body: StreamTokenIn,
    request: Request,
    ctx: ContextDep,
    signer: StreamTokenSignerDep,
    principal: MayRead,
) -> StreamTokenOut:
    """Create a short-lived token that opens one stream by `?stream_token=`. A run's token also reads its
    snapshot."""
    run_id = None if body.run_id is None else RunId(body.run_id)
    thread_id = body.thread_in(principal.tenant)
    if run_id is not None:
        await records.read_run(ctx, principal, run_id)
    elif thread_id is not None:
        await records.read_thread(ctx, principal, thread_id)
    expires_at = ctx.clock.now() + timedelta(seconds=request.app.state.stream_token_ttl)
    token = signer.sign(principal, run_id, thread_id, expires_at)
    return StreamTokenOut(token=token, expires_at=expires_at)
