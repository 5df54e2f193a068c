"""Sign-in and sign-out: an API key is exchanged for a session cookie that scripts can't read."""

from datetime import timedelta

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.http.access import sender_of
from app.http.auth import Authenticator
from app.http.deps import ContextDep
from app.http.errors import problem
from app.http.origins.senders import is_of_own_page_only, require_host
from app.http.sessions.cookies import SESSION_SECONDS, cookie_name, set_cookie
from app.http.sessions.signer import SessionSigner

router = APIRouter(prefix="/console/session", include_in_schema=False)


class SignInRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    api_key: str = Field(min_length=1, max_length=1000)


@router.post("")
async def sign_in(request: Request, body: SignInRequest, ctx: ContextDep) -> Response:
    """Set the session cookie for an API key. A server without keys needs no session."""
    authenticator: Authenticator = request.app.state.authenticator
    access, sender = authenticator.web_access, sender_of(request)
    if access.hosts:
        require_host(sender, access)
    if not is_of_own_page_only(sender, access):
        return _refused(request)
    if authenticator.is_keyless:
        return Response(status_code=204)
    name = cookie_name(sender, access)
    if name is None:
        return problem(
            request,
            403,
            "console_needs_https",
            "The console is reached by unencrypted HTTP, where others could read the API key. Open it by https, "
            "or on the server's own machine.",
        )
    signer: SessionSigner = request.app.state.session_signer
    expires_at = ctx.clock.now() + timedelta(seconds=SESSION_SECONDS)
    value = signer.sign(authenticator.key_id(body.api_key), expires_at)
    return Response(status_code=204, headers={"Set-Cookie": set_cookie(name, value)})


@router.delete("")
async def sign_out(request: Request) -> Response:
    """Make the browser forget the session cookie."""
    authenticator: Authenticator = request.app.state.authenticator
    sender = sender_of(request)
    if not is_of_own_page_only(sender, authenticator.web_access):
        return _refused(request)
    name = cookie_name(sender, authenticator.web_access)
    headers = {} if name is None else {"Set-Cookie": set_cookie(name, "", seconds=0)}
    return Response(status_code=204, headers=headers)


def _refused(request: Request) -> Response:
    return problem(
        request,
        403,
        "console_session_refused",
        "Only a page of this console may sign in or out. The request doesn't come from one.",
    )
