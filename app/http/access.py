"""Authorization of routes: first the API key, then the scope, then the rest of the request.

The framework reads and validates the body before it runs dependencies. `AuthorizedRoute` authorizes before
that, so that a client without the scope doesn't learn which requests would be valid.
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
from app.http.origins.senders import Sender
from app.http.sessions.cookies import session_values
from app.http.sessions.signer import SessionSigner
from app.http.stream_grants import StreamTokenSigner

StreamToken = Annotated[
    str | None,
    Query(
        description="A token from POST /v1/stream-tokens, for clients that can't send headers.",
        max_length=2000,
    ),
]


@runtime_checkable
class Access(Protocol):
    """A dependency that authorizes a request and returns its principal."""

    async def authorize(self, request: Request) -> Principal: ...


class RequireScope:
    """Requires an API key with a scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def authorize(self, request: Request) -> Principal:
        principal = await authenticated(request)
        principal.require(self._scope)
        return principal

    async def __call__(self, request: Request) -> Principal:
        return _authorized(request)


class RequireAnyScope:
    """Requires an API key with at least one of two scopes."""

    def __init__(self, scope: Scope, wider: Scope) -> None:
        self._scope, self._wider = scope, wider

    async def authorize(self, request: Request) -> Principal:
        principal = await authenticated(request)
        if not principal.may(self._wider):
            principal.require(self._scope)
        return principal

    async def __call__(self, request: Request) -> Principal:
        return _authorized(request)


class RequireKey:
    """Requires an API key with any scopes."""

    async def authorize(self, request: Request) -> Principal:
        return await authenticated(request)

    async def __call__(self, request: Request) -> Principal:
        return _authorized(request)


class RequireStream:
    """Requires an API key with `runs:read`, or a stream token for exactly this stream."""

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
            raise Forbidden(
                "stream_token_elsewhere",
                "This stream token is for another stream. Create one for this stream.",
            )
        return grant.principal

    async def __call__(self, request: Request, stream_token: StreamToken = None) -> Principal:
        return _authorized(request)

    def _id(self, request: Request, name: str) -> str | None:
        """The id in the path. One that isn't a UUID is returned as it is and matches no token."""
        if name != self._id_in_path:
            return None
        given: str = request.path_params[name]
        return canonical_uuid(given) or given


class AuthorizedRoute(APIRoute):
    """A route that authorizes a request before it reads the body. Declaring one without an `Access`
    dependency raises."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        access = access_of(self)

        async def authorized(request: Request) -> Response:
            request.state.principal = await access.authorize(request)
            return await handle(request)

        return authorized


def access_of(route: APIRoute) -> Access:
    """The dependency that authorizes the route's requests. Raises if it has none."""
    calls: list[object] = [one.call for one in route.dependant.dependencies]
    needed = [call for call in calls if isinstance(call, Access)]
    if len(needed) != 1:
        raise TypeError(
            f"{route.path} must depend on one of MayRead, MayWrite, MayDecide, MayFollow…"
        )
    return needed[0]


async def authenticated(request: Request) -> Principal:
    """The principal behind the request's headers."""
    authenticator, sender = _authenticator(request), sender_of(request)
    key_id = None
    if sender.cookies and not sender.authorizations and not authenticator.is_keyless:
        signer: SessionSigner = request.app.state.session_signer
        now = request.app.state.ctx.clock.now()
        values = session_values(sender, authenticator.web_access)
        key_id = next(filter(None, (signer.key_id(value, now) for value in values)), None)
    return authenticator.principal(sender, key_id)


def sender_of(request: Request) -> Sender:
    headers = request.headers
    return Sender(
        authorizations=headers.getlist("authorization"),
        hosts=headers.getlist("host"),
        origins=headers.getlist("origin"),
        fetch_sites=headers.getlist("sec-fetch-site"),
        names_host_in_target=getattr(request.state, NAMES_HOST_IN_TARGET, False),
        cookies=headers.getlist("cookie"),
        is_read=request.method in ("GET", "HEAD"),
    )


def _authenticator(request: Request) -> Authenticator:
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


def _authorized(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


HasKey = Annotated[Principal, Depends(RequireKey())]
MayRead = Annotated[Principal, Depends(RequireScope(Scope.RUNS_READ))]
MayWrite = Annotated[Principal, Depends(RequireScope(Scope.RUNS_WRITE))]
MayAdminister = Annotated[Principal, Depends(RequireScope(Scope.ADMIN))]
MaySignal = Annotated[Principal, Depends(RequireScope(Scope.SIGNALS_WRITE))]
MayReadUsage = Annotated[Principal, Depends(RequireScope(Scope.USAGE_READ))]
MayUseMemories = Annotated[
    Principal, Depends(RequireAnyScope(Scope.MEMORIES_OWN, Scope.MEMORIES_ALL))
]
MayDecide = Annotated[Principal, Depends(RequireScope(Scope.DECISIONS_WRITE))]
MayFollowRun = Annotated[Principal, Depends(RequireStream(id_in_path="run_id"))]
MayFollowThread = Annotated[Principal, Depends(RequireStream(id_in_path="thread_id"))]
MayFollowInbox = Annotated[Principal, Depends(RequireStream(id_in_path=None))]
