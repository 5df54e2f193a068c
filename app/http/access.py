"""Who may use a route: authentication first, then the scope, and only then the rest of the request.

The framework reads a body before it solves dependencies. So `AuthorizedRoute` lets in before that: a
client without a key, or without the scope, learns nothing about which requests would be valid.
"""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Protocol, runtime_checkable

from fastapi import Depends, Query, Request, Response
from fastapi.routing import APIRoute

from app.domain.errors import Forbidden
from app.domain.ids import canonical_uuid
from app.domain.principals import Principal, Scope
from app.http.auth import Authenticator
from app.http.limits.connections import NAMES_HOST_IN_TARGET
from app.http.openapi import STREAM_TOKEN
from app.http.senders import Sender
from app.http.stream_grants import StreamTokenSigner

StreamToken = Annotated[
    str | None,
    Query(description="From POST /v1/stream-tokens, where headers can't be sent.", max_length=2000),
]


@runtime_checkable
class Access(Protocol):
    """A dependency that says what a route needs, and whose value is the principal."""

    async def authorize(self, request: Request) -> Principal: ...


class RequireScope:
    """The principal behind an API key that has a scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def authorize(self, request: Request) -> Principal:
        principal = await authenticated(request)
        principal.require(self._scope)
        return principal

    async def __call__(self, request: Request) -> Principal:
        return _authorized(request)


class RequireStream:
    """The principal that reads a stream: by a key that may read runs, or by a token for exactly this one."""

    def __init__(self, *, id_in_path: str | None) -> None:
        """`id_in_path` is the parameter `run_id` or `thread_id`; None means the inbox."""
        self._id_in_path = id_in_path

    async def authorize(self, request: Request) -> Principal:
        token = request.query_params.get(STREAM_TOKEN)
        if token is None:
            return await RequireScope(Scope.RUNS_READ).authorize(request)
        signer: StreamTokenSigner = request.app.state.stream_token_signer
        grant = signer.grant(token, request.app.state.ctx.clock.now())
        if (grant.run_id, grant.thread_id) != (
            self._id(request, "run_id"),
            self._id(request, "thread_id"),
        ):
            raise Forbidden("stream_token_elsewhere", "This stream token is for another stream.")
        return grant.principal

    async def __call__(self, request: Request, stream_token: StreamToken = None) -> Principal:
        return _authorized(request)

    def _id(self, request: Request, name: str) -> str | None:
        """An id that isn't a UUID equals that of no token."""
        if name != self._id_in_path:
            return None
        given: str = request.path_params[name]
        return canonical_uuid(given) or given


class AuthorizedRoute(APIRoute):
    """A route that reads nothing of a request before its client is let in. One that doesn't say what it
    needs can't be made."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        calls: list[object] = [one.call for one in self.dependant.dependencies]
        needed = [call for call in calls if isinstance(call, Access)]
        if len(needed) != 1:
            raise TypeError(
                f"{self.path} must depend on one of MayRead, MayWrite, MayDecide, MayFollow…"
            )
        [access] = needed

        async def authorized(request: Request) -> Response:
            request.state.principal = await access.authorize(request)
            return await handle(request)

        return authorized


async def authenticated(request: Request) -> Principal:
    """The principal behind the request's headers."""
    headers = request.headers
    return _door(request).principal(
        Sender(
            authorizations=headers.getlist("authorization"),
            hosts=headers.getlist("host"),
            origins=headers.getlist("origin"),
            fetch_sites=headers.getlist("sec-fetch-site"),
            names_host_in_target=getattr(request.state, NAMES_HOST_IN_TARGET, False),
        )
    )


def _door(request: Request) -> Authenticator:
    authenticator: Authenticator = request.app.state.doorkeeper
    return authenticator


def _authorized(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


MayRead = Annotated[Principal, Depends(RequireScope(Scope.RUNS_READ))]
MayWrite = Annotated[Principal, Depends(RequireScope(Scope.RUNS_WRITE))]
MaySignal = Annotated[Principal, Depends(RequireScope(Scope.SIGNALS_WRITE))]
MayDecide = Annotated[Principal, Depends(RequireScope(Scope.DECISIONS_WRITE))]
MayFollowRun = Annotated[Principal, Depends(RequireStream(id_in_path="run_id"))]
MayFollowThread = Annotated[Principal, Depends(RequireStream(id_in_path="thread_id"))]
MayFollowInbox = Annotated[Principal, Depends(RequireStream(id_in_path=None))]
