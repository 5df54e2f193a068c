"""Large JSON answers, encoded and sent in slices so that other requests are served in between."""

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
    """An answer with the fields of a model and, last, the list `name`. No item is encoded before it is sent."""
    return StreamingResponse(
        _pieces(fields, name, items, show), status_code=status, media_type="application/json"
    )


async def _pieces(
    fields: BaseModel, name: str, items: Iterable[T], show: Callable[[T], BaseModel]
) -> AsyncGenerator[bytes]:
    before = fields.model_dump_json().encode().removesuffix(b"}")
    joint = b"," if len(before) > 1 else b""
    gathered = bytearray(b'%s%s"%s":[' % (before, joint, name.encode()))
    for place, item in enumerate(items):
        gathered += b"," * (place > 0) + show(item).model_dump_json().encode()
        if len(gathered) > SLICE_BYTES:
            yield bytes(gathered)
            gathered.clear()
            await yield_to_loop()
    yield bytes(gathered) + b"]}"
