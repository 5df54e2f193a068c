"""Routes by which a person gives a subject's runs access to an MCP server. Browsers visit them."""

from typing import Annotated

from fastapi import APIRouter, Cookie, Query, Request, Response
from fastapi.responses import HTMLResponse

from app.commands import mcp_access as commands
from app.http.access import AuthorizedRoute, MayWrite
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.tools.mcp.oauth.authorization import ATTEMPT_SECONDS

COOKIE = "holdfast-mcp-access"
_MAX_CHARACTERS = 4_000
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Access was given</title>"
    "<p>Access was given. Close this page, and answer the ticket that asked for it."
)
_POLICY = "default-src 'none'; frame-ancestors 'none'"

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/mcp-servers", tags=["mcp-servers"])
callback_router = APIRouter(prefix="/v1/mcp-servers", include_in_schema=False)
_Parameter = Annotated[str | None, Query(max_length=_MAX_CHARACTERS)]


@router.get("/{server_id}/authorize", include_in_schema=False)
async def authorize_mcp_server(
    server_id: str, request: Request, ctx: ContextDep, principal: MayWrite
) -> Response:
    """Redirect to the authorization server, where the caller gives access for the caller's runs."""
    # A program with an API key shows the address to its own user. Any other sender is a browser.
    in_browser = "authorization" not in request.headers
    address, attempt = await commands.begin(
        ctx, principal, server_id, in_browser=in_browser, base_url=_base_url(request)
    )
    headers = {"location": address, "cache-control": "no-store", "referrer-policy": "no-referrer"}
    response = Response(status_code=303, headers=headers)
    if attempt.browser is not None:
        response.set_cookie(
            COOKIE,
            attempt.browser,
            max_age=int(ATTEMPT_SECONDS),
            path="/",
            secure=attempt.redirect_uri.startswith("https://"),
            httponly=True,
            samesite="lax",
        )
    return response


@callback_router.get("/{server_id}/callback")
async def finish_mcp_authorization(
    server_id: str,
    ctx: ContextDep,
    state: Annotated[str, Query(max_length=_MAX_CHARACTERS)],
    code: _Parameter = None,
    error: _Parameter = None,
    iss: _Parameter = None,
    browser: Annotated[str | None, Cookie(alias=COOKIE)] = None,
) -> Response:
    """The authorization server redirects here. Only the sealed `state` says who began."""
    await commands.finish(
        ctx, server_id, state=state, code=code, error=error, issuer=iss, browser=browser
    )
    headers = {"cache-control": "no-store", "content-security-policy": _POLICY}
    response = HTMLResponse(_PAGE, headers=headers)
    response.delete_cookie(COOKIE, path="/")
    return response


@router.delete(
    "/{server_id}/authorization", status_code=204, responses=error_responses("mcp_server_not_found")
)
async def delete_mcp_authorization(server_id: str, ctx: ContextDep, principal: MayWrite) -> None:
    """Delete the caller's tokens for an MCP server. The caller's runs have to ask for access again."""
    await commands.withdraw(ctx, principal, server_id)


def _base_url(request: Request) -> str:
    """The address by which the browser reached this server; `HOLDFAST_PUBLIC_URL` wins over it."""
    return str(request.base_url).rstrip("/")
