"""A request to a model server, as it is written to a connection."""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

import httpx2
from msgspec import Struct

_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[ \t!-~\x80-\xff]*[!-~\x80-\xff])?)?")
_SET_BY_US = frozenset({b"content-length", b"transfer-encoding"})


class Server(NamedTuple):
    """Where a connection leads."""

    host: str
    port: int
    is_encrypted: bool


class TimeLimits(NamedTuple):
    """Seconds for a connection, until an answer begins, and between its pieces."""

    connect: float
    answer: float
    idle: float


class PostRequest(Struct, frozen=True):
    """A request without its body. It can be sent many times."""

    url: httpx2.URL
    headers: Sequence[tuple[bytes, bytes]]
    """All but the length of the body."""
    server: Server
    head: bytes
    """What is written before the length of the body."""

    @classmethod
    def to(cls, url: httpx2.URL, headers: httpx2.Headers) -> "PostRequest":
        """Raises `httpx2.LocalProtocolError` if a header can't be written."""
        if url.scheme not in _PORTS:
            raise httpx2.UnsupportedProtocol(f"the scheme {url.scheme!r} isn't http or https")
        port = _PORTS[url.scheme] if url.port is None else url.port
        server = Server(url.raw_host.decode("ascii"), port, url.scheme == "https")
        sent = _sent(url, headers)
        if not all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in sent):
            raise httpx2.LocalProtocolError("a header has characters that HTTP can't carry")
        lines = b"".join(b"%b: %b\r\n" % header for header in sent)
        return cls(url, sent, server, b"POST %b HTTP/1.1\r\n%b" % (url.raw_path, lines))

    def with_body(self, body: bytes) -> bytes:
        return b"%bContent-Length: %d\r\n\r\n%b" % (self.head, len(body), body)


def _sent(url: httpx2.URL, headers: httpx2.Headers) -> list[tuple[bytes, bytes]]:
    """These headers, with the host and the credentials of the address. A host among them stays."""
    credentials = _credentials(url)
    replaced = {*_SET_BY_US, b"authorization"} if credentials else _SET_BY_US
    sent = [*credentials, *(header for header in headers.raw if header[0].lower() not in replaced)]
    return sent if "host" in headers else [(b"Host", url.netloc), *sent]


def _credentials(url: httpx2.URL) -> list[tuple[bytes, bytes]]:
    """The name and the password in an address, as a header."""
    if not (url.username or url.password):
        return []
    pair = b64encode(f"{url.username}:{url.password}".encode())
    return [(b"Authorization", b"Basic " + pair)]
