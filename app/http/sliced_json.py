"""Large JSON responses, encoded in slices so that other requests are served in between."""

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TypeVar

from pydantic import BaseModel
from starlette.responses import StreamingResponse

from app.clock import yield_to_loop

T = TypeVar("T")

SLICE_BYTES = 64_000


def sliced_json(
    fields: BaseModel,
    name: str,
    items: Iterable[T],
    show: Callable[[T], BaseModel],
    *,
    status: int = 200,
) -> StreamingResponse:
    """A response with the fields of a model and, last, the list `name`. Items are encoded while sending."""
    return StreamingResponse(
        _pieces(fields, name, items, show), status_code=status, media_type="application/json"
    )


async def _pieces(
    fields: BaseModel, name: str, items: Iterable[T], show: Callable[[T], BaseModel]
) -> AsyncGenerator[bytes]:
    before = fields.model_dump_json().encode().removesuffix(b"}")
    joint = b"," if len(before) > 1 else b""
    buffer = bytearray(b'%s%s"%s":[' % (before, joint, name.encode()))
    for index, item in enumerate(items):
        buffer += b"," * (index > 0) + show(item).model_dump_json().encode()
        if len(buffer) > SLICE_BYTES:
            yield bytes(buffer)
            buffer.clear()
            await yield_to_loop()
    yield bytes(buffer) + b"]}"
