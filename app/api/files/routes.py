"""Routes of files: upload, list, get, download and delete."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from app.api.files.content import content_response
from app.api.files.uploads import FORM, upload_of
from app.api.lists import Listed
from app.api.schemas.common import Page, ResponseModel, Time, Uuid
from app.commands.files.delete import delete_file as delete_stored_file
from app.commands.files.upload import upload
from app.domain.ids import FileId, ThreadId
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead, MayWrite
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.queries.files import reading as files

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1/files", tags=["files"])
uploads = APIRouter(route_class=AuthorizedRoute, prefix="/v1/files", tags=["files"])
"""The route whose body is not JSON. It checks its headers itself."""
_of_a_file = error_responses("file_not_found")
_of_bytes = error_responses("file_not_found", "files_unavailable")
_BYTES = {"schema": {"type": "string", "format": "binary"}}


_FORM_SCHEMA = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "string", "format": "binary"}},
    "description": "A form with one file. Its part names it, and may have its `Content-Type`.",
}


class FileOut(ResponseModel):
    """An uploaded file. Parts of messages refer to it by its id."""

    id: str
    name: str | None = Field(description="The file's name; null if the upload had none.")
    media_type: str = Field(description="The media type, as sent or by the signature of the bytes.")
    size: int = Field(description="Number of bytes.")
    sha256: str = Field(description="SHA-256 of the bytes, in hexadecimal.")
    created_by: str
    created_at: Time


@uploads.post(
    "",
    status_code=201,
    responses=error_responses("file_empty", "media_type_mismatch", "files_unavailable"),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The bytes of the file. `Content-Disposition: attachment; filename=…` names it.",
            "content": {"application/octet-stream": _BYTES, FORM: {"schema": _FORM_SCHEMA}},
        }
    },
)
async def upload_file(
    request: Request, response: Response, ctx: ContextDep, principal: MayWrite
) -> FileOut:
    """Upload a file. The body is its bytes with their `Content-Type`, or a form. Equal bytes are stored once."""
    new, pieces = await upload_of(request)
    file = await upload(ctx, principal, new, pieces)
    response.headers["Location"] = f"/v1/files/{file.id}"
    return FileOut.model_validate(file)


@router.get("", responses=error_responses("thread_not_found"))
async def list_files(
    ctx: ContextDep,
    principal: MayRead,
    paging: Listed,
    thread_id: Annotated[
        Uuid | None,
        Query(
            description="Only files of this thread: its messages refer to them, or its tools saved them."
        ),
    ] = None,
) -> Page[FileOut]:
    """List files, by default the newest first."""
    query = paging.of(list="files", thread=thread_id)
    found = await files.list_files(
        ctx,
        principal,
        None if thread_id is None else ThreadId(thread_id),
        query.by_creation(),
    )
    return Page[FileOut].of(
        found,
        show=FileOut.model_validate,
        cursor=lambda file: cursors.encode(query.name, file.created_at, file.id),
    )


@router.get("/{file_id}", responses=_of_a_file)
async def get_file(file_id: Uuid, ctx: ContextDep, principal: MayRead) -> FileOut:
    """Get a file without its bytes."""
    return FileOut.model_validate(await files.read_file(ctx, principal, FileId(file_id)))


@router.get(
    "/{file_id}/content",
    response_class=Response,
    responses={
        200: {"content": {"*/*": _BYTES}, "description": "The bytes, as the file's media type"},
        206: {"content": {"*/*": _BYTES}, "description": "The range, as the file's media type"},
        304: {"description": "`If-None-Match` has the file's ETag"},
        **_of_bytes,
    },
)
async def download_file(
    file_id: Uuid, request: Request, ctx: ContextDep, principal: MayRead
) -> Response:
    """Download the bytes of a file, or the range in `Range`. Browsers save them and never show them."""
    file = await files.read_file(ctx, principal, FileId(file_id))
    return await content_response(request, ctx, principal.tenant, file)


router.add_api_route("/{file_id}/content", download_file, methods=["HEAD"], include_in_schema=False)


@router.delete("/{file_id}", status_code=204, responses=_of_a_file)
async def delete_file(file_id: Uuid, ctx: ContextDep, principal: MayWrite) -> None:
    """Delete a file. Messages that refer to it stay, and models read a placeholder."""
    await delete_stored_file(ctx, principal, FileId(file_id))
