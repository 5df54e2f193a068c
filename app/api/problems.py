"""Routes of the pages about error codes. They need no API key: they say the same to everyone."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from app.http.error_help import pages

router = APIRouter(prefix=pages.PATH, include_in_schema=False)
_HEADERS = {
    "Cache-Control": "public, max-age=3600",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


@router.head("")
@router.get("")
async def list_problems() -> HTMLResponse:
    """All error codes."""
    return HTMLResponse(pages.index(), headers=_HEADERS)


@router.head("/{code}")
@router.get("/{code}")
async def get_problem(code: str) -> HTMLResponse:
    """What an error code means, and what to do."""
    page = pages.page_of(code)
    if page is None:
        raise HTTPException(404)
    return HTMLResponse(page, headers=_HEADERS)
