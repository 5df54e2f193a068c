"""Files over HTTP while their bytes are in a bucket, and how a bucket that can't be used is reported."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from unittest.mock import patch

import pytest
from pydantic import ValidationError

from app.bootstrap.file_chunks import file_chunks
from app.domain.errors import ConfigurationError
from app.settings import Settings
from app.storage.files.s3_chunks import OBJECT_BYTES
from tests.integration.conftest import AGENTS
from tests.support.commands import holdfast
from tests.support.problems import the_problem
from tests.support.s3_server import BLOBS, S3Server, s3_server
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

LONG = bytes(range(251)) * (OBJECT_BYTES // 251 + 20)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
async def server(served_database: str, s3: S3Server) -> AsyncIterator[Server]:
    with patch.dict(os.environ, s3.environment):
        async with serving(served_database, agents=AGENTS, blobs=BLOBS) as running:
            yield running


async def uploaded(client: Client) -> str:
    response = await client.http.post(
        "/v1/files", content=LONG, headers={"Content-Type": "application/x-data"}
    )
    assert response.status_code == 201, response.text
    id_: str = response.json()["id"]
    return id_


async def test_a_file_in_the_bucket_is_downloaded_whole_and_by_range(client: Client) -> None:
    address = f"/v1/files/{await uploaded(client)}/content"
    assert (await client.http.get(address)).content == LONG
    first, last = OBJECT_BYTES - 10, OBJECT_BYTES + 10
    part = await client.http.get(address, headers={"Range": f"bytes={first}-{last}"})
    assert (part.status_code, part.content) == (206, LONG[first : last + 1])


async def test_an_outage_of_the_bucket_is_a_503_for_its_bytes_only(
    client: Client, s3: S3Server
) -> None:
    id_ = await uploaded(client)
    data = {"Content-Type": "application/x-data"}
    before = await client.get("/v1/files")
    with s3.stopped():
        for response in (
            await client.http.get(f"/v1/files/{id_}/content"),
            await client.http.post("/v1/files", content=b"new", headers=data),
        ):
            assert the_problem(response, 503, "files_unavailable")["retryable"]
            assert response.headers["Retry-After"]
        assert (await client.get(f"/v1/files/{id_}"))["size"] == len(LONG)
        assert await client.get("/v1/files") == before
    assert (await client.http.get(f"/v1/files/{id_}/content")).content == LONG


async def test_the_doctor_uses_the_bucket(served_database: str, s3: S3Server) -> None:
    given = {"DATABASE_URL": served_database, **s3.environment}
    fine = await holdfast("doctor", HOLDFAST_BLOBS=BLOBS, **given)
    assert f"ok       files: {BLOBS} takes, returns and deletes objects" in fine.out
    wrong = await holdfast("doctor", HOLDFAST_BLOBS="s3://unknown", **given)
    assert "problem  files: s3://unknown can't be used" in wrong.out
    assert wrong.code == 1


def test_a_missing_library_is_named_with_its_installation() -> None:
    without = {"obstore": None, "obstore.store": None, "obstore.exceptions": None}
    with patch.dict(sys.modules, without):
        sys.modules.pop("app.storage.files.s3_chunks", None)
        with pytest.raises(ConfigurationError, match=r"pip install 'holdfast-server\[s3\]'"):
            file_chunks(Settings(blobs=BLOBS), {})


@pytest.mark.parametrize("wrong", ["files", "s3://", "s3://a", "s3://Bucket", "s3://bucket/a//b"])
def test_a_wrong_address_of_the_bucket_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError):
        Settings(blobs=wrong)


def test_without_the_setting_files_are_in_the_database() -> None:
    assert file_chunks(Settings(), {}) is None
