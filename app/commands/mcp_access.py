"""Give a subject's runs access to an MCP server, and withdraw it."""

import structlog

from app.context import ServiceContext
from app.domain.errors import Conflict, Invalid, Unavailable
from app.domain.principals import Principal, Scope
from app.queries.mcp_servers import require_server
from app.storage import mcp_tokens
from app.tools.mcp.client import ServerAway
from app.tools.mcp.oauth.authorization import Attempt, AuthorizationFailed
from app.tools.mcp.oauth.authorization_server import AuthorizationServerFailed, TokenRefused
from app.tools.mcp.oauth.server_authorization import ServerAuthorization
from app.tools.mcp.oauth.token_store import Holder

log = structlog.get_logger(__name__)


async def begin(
    ctx: ServiceContext, principal: Principal, name: str, *, in_browser: bool, base_url: str
) -> tuple[str, Attempt]:
    """The address where the caller gives access to an account, for the caller's own runs."""
    principal.require(Scope.RUNS_WRITE)
    authorization = _authorization(ctx, name)
    holder = Holder(principal.tenant, principal.subject)
    try:
        return await authorization.begin(holder, in_browser=in_browser, base_url=base_url)
    except (AuthorizationServerFailed, ServerAway) as error:
        raise _away(ctx, name, error) from error


async def finish(
    ctx: ServiceContext,
    name: str,
    *,
    state: str,
    code: str | None,
    error: str | None,
    issuer: str | None,
    browser: str | None,
) -> None:
    """Store the tokens for the code that the authorization server gave. The `state` says for whom."""
    authorization = _authorization(ctx, name)
    try:
        authorization.attempt(state, browser)
        if not code:
            said = "no code" if error is None else f"the error {error[:100]!r}"
            raise AuthorizationFailed(f"the authorization server answered with {said}")
        holder = await authorization.finish(state, code, issuer, browser)
    except (AuthorizationFailed, TokenRefused) as failure:
        raise Invalid(
            "mcp_authorization_failed",
            f"No access to {name!r} was given: {ctx.redact(str(failure))}. Begin again at"
            f" /v1/mcp-servers/{name}/authorize.",
        ) from failure
    except (AuthorizationServerFailed, ServerAway) as failure:
        raise _away(ctx, name, failure) from failure
    log.info("mcp_access_given", server=name, tenant=holder.tenant, subject=holder.subject)


async def withdraw(ctx: ServiceContext, principal: Principal, name: str) -> None:
    """Delete the caller's tokens for a server. Its runs have to ask for access again."""
    principal.require(Scope.RUNS_WRITE)
    require_server(ctx, name)
    subject = principal.subject
    await mcp_tokens.delete_of_subject(ctx.database.pool, principal.tenant, name, subject)
    authorization = ctx.agents.mcp.servers[name].authorization
    if authorization is not None and authorization.is_per_subject:
        authorization.forget(Holder(principal.tenant, subject))
    log.info("mcp_access_withdrawn", server=name, subject=subject)


def _authorization(ctx: ServiceContext, name: str) -> ServerAuthorization:
    require_server(ctx, name)
    authorization = ctx.agents.mcp.servers[name].authorization
    if authorization is None or not authorization.is_per_subject:
        raise Conflict(
            "mcp_authorization_unused",
            f"The MCP server {name!r} needs no access of single subjects. Only servers with"
            ' grant = "authorization_code" in [mcp.NAME.oauth] do.',
        )
    return authorization


def _away(ctx: ServiceContext, name: str, error: Exception) -> Unavailable:
    return Unavailable(
        "mcp_authorization_server_away",
        f"The authorization server of the MCP server {name!r} can't be used: {ctx.redact(str(error))}. Try again"
        " later.",
    )
