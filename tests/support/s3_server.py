"""An S3 server on loopback, in a thread of the tests. What it has stored survives a stop."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import httpx2
from moto.server import ThreadedMotoServer

from app.bootstrap.file_chunks import file_chunks
from app.settings import Settings
from app.storage.files.s3_chunks import S3Chunks

BUCKET = "files"
BLOBS = f"s3://{BUCKET}/of/holdfast"


@dataclass(slots=True)
class S3Server:
    port: int
    _server: ThreadedMotoServer | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL_S3": self.address,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "eu-central-1",
        }

    def start(self) -> None:
        if self._server is not None:
            return
        self._server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self._server.start()
        _, self.port = self._server.get_host_and_port()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """An outage."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def chunks(self, blobs: str = BLOBS) -> S3Chunks:
        """The store as a server with `HOLDFAST_BLOBS` opens it."""
        with patch.dict(os.environ, self.environment):
            opened = file_chunks(Settings(blobs=blobs), os.environ)
        assert opened is not None
        return opened

    async def keys(self) -> list[str]:
        """The keys of all objects in the bucket."""
        async with httpx2.AsyncClient() as client:
            listed = await client.get(f"{self.address}/{BUCKET}?list-type=2")
        return [part.split("</Key>")[0] for part in listed.text.split("<Key>")[1:]]


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with an empty bucket, on a free port."""
    server = S3Server(0)
    server.start()
    try:
        httpx2.post(f"{server.address}/moto-api/reset").raise_for_status()
        httpx2.put(f"{server.address}/{BUCKET}").raise_for_status()
        yield server
    finally:
        server.stop()
