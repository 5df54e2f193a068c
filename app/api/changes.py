"""Route of the hints that tell lists what to read again."""

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.api.schemas.common import ResponseModel
from app.events.feeds.changes import RESET
from app.events.follow_changes import ChangeFollower
from app.http.access import AuthorizedRoute, MayRead
from app.http.deps import ContextDep, StreamOptionsDep
from app.http.headers import wants_event_stream
from app.http.sse import EventStream

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/changes", tags=["runs"])


class ChangedRunOut(ResponseModel):
    """A run that may have changed."""

    id: str
    thread_id: str
    agent_id: str
    status: Literal["created", "running", "waiting", "done"]
    outcome: str | None


class ChangesOut(ResponseModel):
    """Runs and tickets that may have changed."""

    reset: bool = Field(description="Anything may have changed: read your lists again.")
    tickets: bool = Field(description="Whether tickets may have changed.")
    runs: list[ChangedRunOut] = Field(description="Runs that may have another status.")


@router.get(
    "",
    response_model=ChangesOut,
    responses={
        200: {
            "content": {"text/event-stream": {}},
            "description": "Hints as a stream, at most four a second; or one hint",
        }
    },
)
async def list_changes(
    request: Request, ctx: ContextDep, principal: MayRead, options: StreamOptionsDep
) -> Response:
    """Follow which runs and tickets of the tenant may have changed, for lists that read them again. With `Accept:
    text/event-stream` the hints are a stream, without ids. It begins with `reset`, and sends `reset` after each
    gap. Without it the answer is a `reset`."""
    if not wants_event_stream(request):
        return Response(RESET, media_type="application/json")
    follower = ChangeFollower(ctx.feeds, principal.tenant, heartbeat=options.heartbeat)
    return EventStream(follower, options)
