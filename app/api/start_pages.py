"""Routes of the pages that a browser is shown first. They need no API key: they show no data."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.exceptions import HTTPException

from app.http.deps import ContextDep
from app.http.start_pages import pages

router = APIRouter(include_in_schema=False)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Vary": "Accept",
}
_HEADERS_OF_DOCS = {
    # The page has an inline script. Nothing is loaded from elsewhere, and nothing is sent elsewhere.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline'"
}
_HEADERS_OF_ASSETS = {"Cache-Control": "public, max-age=3600"}


@router.head("/")
@router.get("/")
async def get_start_page(request: Request, ctx: ContextDep) -> Response:
    """The console for a browser. For a terminal, what this server is and what to do first.

    Without a built console, the browser gets that as HTML.
    """
    is_browser = "text/html" in request.headers.get("accept", "")
    if is_browser and request.app.state.console_assets is not None:
        return RedirectResponse("console/", 307, headers=_HEADERS)
    is_keyless = request.app.state.authenticator.is_keyless
    # The page needs no key, so a server with keys doesn't name its agents on it.
    agents = list(ctx.agents.specs) if is_keyless else ["those of its agents file"]
    steps = pages.first_steps(agents[0])
    if is_browser:
        return HTMLResponse(pages.start_page(agents, steps), headers=_HEADERS)
    return PlainTextResponse(pages.start_text(agents, steps), headers=_HEADERS)


@router.head("/docs")
@router.get("/docs")
async def get_api_page() -> Response:
    """The API, to read and to try."""
    return HTMLResponse(pages.api_page(), headers=_HEADERS_OF_DOCS)


@router.head("/docs/{name}")
@router.get("/docs/{name}")
async def get_asset(name: str) -> Response:
    """A file of the page about the API."""
    if name not in pages.ASSETS:
        raise HTTPException(404)
    return Response(pages.asset(name), media_type=pages.ASSETS[name], headers=_HEADERS_OF_ASSETS)
