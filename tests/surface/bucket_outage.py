"""Refusals while the bucket with the bytes of files doesn't answer."""

import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import patch

import httpx2

from tests.support.routes import Route
from tests.surface.inputs import an_upload, send, to_both
from tests.surface.pending_inputs import INPUT, change_to
from tests.surface.scenarios import answers, post
from tests.surface.servers import Servers

_CODE = "503 files_unavailable"
_AWAY = {
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_REGION": "eu-central-1",
}
_IMAGE = {
    "type": "image",
    "source": {
        "type": "base64",
        "media_type": "image/png",
        "data": b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60_000)).decode(),
    },
}


@asynccontextmanager
async def without_bucket(servers: Servers) -> AsyncIterator[Servers]:
    """The servers, with a client `ann` of one whose bucket is away."""
    with patch.dict(os.environ, _AWAY):
        async with servers.extra_server(blobs="s3://files") as server, server.client("ann") as ann:
            yield replace(servers, ann=ann)


@answers(f"POST /v1/files {_CODE}")
async def for_an_upload(servers: Servers, route: Route) -> httpx2.Response:
    async with without_bucket(servers) as here:
        return await an_upload(here)


@answers(f"GET /v1/files/{{file_id}}/content {_CODE}")
async def for_a_download(servers: Servers, route: Route) -> httpx2.Response:
    file = (await an_upload(servers)).json()
    await servers.execute("UPDATE blobs SET place = 's3' WHERE sha256 = $1", file["sha256"])
    return await route.ask(servers.ann, {"file_id": file["id"]})


@answers(f"POST /v1/runs {_CODE}")
async def for_a_run(servers: Servers, route: Route) -> httpx2.Response:
    body = {"agent_id": "quick", "messages": [{"role": "user", "content": [_IMAGE]}]}
    async with without_bucket(servers) as here:
        return await post(here, "/v1/runs", body)


@to_both(_CODE)
async def for_an_input(servers: Servers, route: Route) -> httpx2.Response:
    run = await servers.done()
    async with without_bucket(servers) as here:
        return await send(here, route, run, [_IMAGE])


@answers(f"PATCH {INPUT} {_CODE}")
async def for_a_changed_input(servers: Servers, route: Route) -> httpx2.Response:
    async with without_bucket(servers) as here:
        return await change_to(servers, here.ann, _IMAGE)
