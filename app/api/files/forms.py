"""The body of an upload as `multipart/form-data`: one file, which is passed on while it arrives."""

from collections.abc import AsyncIterator
from email.message import Message
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

from app.domain.errors import Invalid, TooLarge

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_FIELD_BYTES = 65_536
"""Of all other fields of the form together."""
_MAX_HEADERS_BYTES = 8_192


def boundary_of(content_type: str) -> str:
    """The boundary in a Content-Type header; refuses a header without one."""
    message = Message()
    message["content-type"] = content_type.replace("\r", "").replace("\n", "")
    boundary = message.get_boundary()
    if not boundary:
        raise _refused("its Content-Type has no boundary")
    return boundary


class FormFile:
    """The only file of a form. Fields that aren't files are ignored."""

    def __init__(self, boundary: str, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._pieces: list[bytes] = []
        self._name = self._value = b""
        self._part: dict[str, str] = {}
        self._ignored = 0
        self._is_file = self._is_complete = False
        self.headers: dict[str, str] | None = None
        """The headers of the file's part, by their names in lower case. None before `begin`."""
        try:
            self._parser = MultipartParser(boundary, self._callbacks(), max_header_count=16)
        except ValueError as error:
            raise _refused(str(error)) from error

    async def begin(self) -> None:
        """Read until the file begins."""
        while self.headers is None:
            piece = await anext(self._body, None)
            if piece is None:
                raise _refused("it has no file")
            self._feed(piece)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The bytes of the file; refuses a form that isn't complete."""
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            body = await anext(self._body, None)
            if body is None:
                break
            self._feed(body)
        if not self._is_complete:
            raise _refused("its last boundary is missing")

    def _feed(self, piece: bytes) -> None:
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise _refused(str(error)) from error

    def _callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._part_begins,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_ends,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_end": self._ends,
        }

    def _part_begins(self) -> None:
        self._part = {}
        self._is_file = False

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_ends(self) -> None:
        if len(self._name) + len(self._value) > _MAX_HEADERS_BYTES:
            raise _refused("a header of it is too long")
        name = self._name.decode("latin-1").strip().lower()
        self._part[name] = self._value.decode(errors="replace").strip()
        self._name = self._value = b""

    def _headers_end(self) -> None:
        message = Message()
        disposition = self._part.get("content-disposition", "")
        message["content-disposition"] = disposition
        self._is_file = message.get_filename() is not None
        if not self._is_file:
            return
        if self.headers is not None:
            raise _refused("it has more than one file")
        self.headers = self._part

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._pieces.append(data[start:end])
            return
        self._ignored += end - start
        if self._ignored > MAX_FIELD_BYTES:
            raise TooLarge(
                "body_too_large",
                f"The fields besides the file are larger than {MAX_FIELD_BYTES} bytes. Send only the file.",
            )

    def _ends(self) -> None:
        self._is_complete = True


def _refused(why: str) -> Invalid:
    return Invalid(
        "invalid_request",
        f"body: the form can't be read, because {why}. Send one file as multipart/form-data, or its bytes as the "
        "body.",
    )
