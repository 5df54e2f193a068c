"""Routes of the console's pages and files. None of them shows data, so none needs an API key."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException

from app.console import headers
from app.console.assets import Assets, media_type
from app.console.pages import FIRST_PAGE, PAGES
from app.console.shell import not_built, shell
from app.http.auth import Authenticator
from app.http.headers import qualities

router = APIRouter(prefix="/console", include_in_schema=False)


@router.get("")
async def get_console(request: Request) -> Response:
    """Redirects are relative, so they work behind a proxy that adds a path."""
    return RedirectResponse("console/", 307)


@router.get("/")
async def get_first_page(request: Request) -> Response:
    if _assets(request) is None:
        return HTMLResponse(not_built(), 503, headers=headers.COMMON)
    return RedirectResponse(FIRST_PAGE, 307)


@router.head("/assets/{name}")
@router.get("/assets/{name}")
async def get_asset(request: Request, name: str) -> Response:
    """A built file. It may be kept for ever, because another content has another name."""
    assets = _assets(request)
    if assets is None or name not in assets.names:
        raise HTTPException(404)
    compressed = qualities(request.headers.get("accept-encoding", "")).get("gzip", 0.0) > 0
    encoding = {"Content-Encoding": "gzip"} if compressed else {}
    return Response(
        assets.content(name, compressed=compressed),
        media_type=media_type(name),
        headers={**headers.ASSET, **encoding},
    )


async def get_page(request: Request) -> Response:
    assets = _assets(request)
    if assets is None:
        return HTMLResponse(not_built(), 503, headers=headers.COMMON)
    authenticator: Authenticator = request.app.state.authenticator
    public_url = authenticator.web_access.public_url
    prefix = "" if public_url is None else public_url.prefix
    path = request.scope["route"].path.removeprefix("/console/")
    return HTMLResponse(
        shell(assets, PAGES[path], prefix),
        headers=headers.of_shell(request.headers.get("host", ""), prefix),
    )


for _path in PAGES:
    router.add_api_route(f"/{_path}", get_page, methods=["GET", "HEAD"])


def _assets(request: Request) -> Assets | None:
    assets: Assets | None = request.app.state.console_assets
    return assets
