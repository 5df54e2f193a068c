"""A process that holds the embedded server of a folder, for tests that end it in every way.

`python -m tests.support.embedded_holder HOW FOLDER` prints "held" when the server runs. HOW is `hold`
(releases the server when stdin ends), `forget` (exits then without a release) or `serve` (a web server under
uvicorn that releases it when its lifespan ends).
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread
import uvicorn
from fastapi import FastAPI

from app.embedded_postgres.server import EmbeddedPostgres


def hold(folder: Path) -> None:
    server = EmbeddedPostgres.start(folder)
    print("held", flush=True)
    sys.stdin.read()
    server.stop()


def forget(folder: Path) -> None:
    EmbeddedPostgres.start(folder)
    print("held", flush=True)
    sys.stdin.read()


def serve(folder: Path) -> None:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        server = await anyio.to_thread.run_sync(EmbeddedPostgres.start, folder)
        print("held", flush=True)
        yield
        await anyio.to_thread.run_sync(server.stop)

    uvicorn.run(FastAPI(lifespan=lifespan), port=0, log_level="warning")


if __name__ == "__main__":
    {"hold": hold, "forget": forget, "serve": serve}[sys.argv[1]](Path(sys.argv[2]))
