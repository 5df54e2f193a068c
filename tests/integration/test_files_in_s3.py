"""Bytes of files in an S3 bucket: up, down, deleted in two steps, and refused with 503 during an outage."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Iterator
from random import Random

import pytest

from app.clock import new_id
from app.commands.files.delete import delete_file
from app.commands.files.upload import upload
from app.commands.files.writing import NewFile
from app.context import ServiceContext
from app.domain.errors import FilesUnavailable, NotFound
from app.domain.files.files import StoredFile
from app.domain.ids import Tenant
from app.domain.principals import Principal
from app.domain.structs import replace
from app.llm.scripted.model import in_order, turn
from app.queries.files.reading import bytes_of, read_file
from app.storage.files import blobs
from app.storage.files.blobs import BlobKey
from app.storage.files.s3_chunks import OBJECT_BYTES, READ_BYTES
from app.storage.postgres.database import Database
from app.workers.files.run_files import FileCache, RunFiles
from app.workers.periodic.file_object_deletion import FileObjectDeletion
from tests.support.replicas import ANN, an_agent, open_replica
from tests.support.s3_server import S3Server, s3_server

pytestmark = pytest.mark.anyio

LONG = Random(7).randbytes(OBJECT_BYTES + READ_BYTES + 1000)
BEN = replace(ANN, tenant=Tenant("other"))


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
async def in_postgres(database_url: str) -> AsyncIterator[ServiceContext]:
    async with open_replica(database_url, an_agent(), in_order(turn("Done."))) as replica:
        yield replica.ctx


@pytest.fixture
def ctx(in_postgres: ServiceContext, s3: S3Server) -> ServiceContext:
    return replace(in_postgres, chunks=s3.chunks())


@pytest.fixture
def deletion(ctx: ServiceContext) -> FileObjectDeletion:
    assert ctx.chunks is not None
    return FileObjectDeletion(ctx.database, ctx.chunks, interval=60.0)


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), 700_001):
        yield content[begin : begin + 700_001]


async def stored(ctx: ServiceContext, content: bytes, who: Principal = ANN) -> StoredFile:
    return await upload(ctx, who, NewFile("a.bin", "image/x"), pieces(content))


async def content_of(
    ctx: ServiceContext, file: StoredFile, first: int = 0, last: int | None = None
) -> bytes:
    last = file.size - 1 if last is None else last
    found = bytes_of(ctx.file_bytes, ANN.tenant, file, first, last)
    return b"".join([piece async for piece in found])


async def mark_unused(database: Database) -> int:
    """Retention, two hours later."""
    await database.pool.execute("UPDATE blobs SET created_at = now() - interval '2 hours'")
    async with database.transaction() as connection:
        return await blobs.delete_unused(connection, 3600, 100)


async def rows(database: Database, table: str = "blobs") -> int:
    count: int = await database.pool.fetchval(f"SELECT count(*) FROM {table}")
    return count


async def test_bytes_go_to_the_bucket_and_come_back_whole_and_in_ranges(
    ctx: ServiceContext, s3: S3Server
) -> None:
    file = await stored(ctx, LONG)
    assert file.sha256 == hashlib.sha256(LONG).hexdigest()
    assert await rows(ctx.database, "blob_chunks") == 0
    folder = f"of/holdfast/{ANN.tenant}/{file.blob_id}"
    assert await s3.keys() == [f"{folder}/0", f"{folder}/1"]
    assert await content_of(ctx, file) == LONG
    for first, last in (
        (0, 0),
        (READ_BYTES - 1, READ_BYTES),
        (OBJECT_BYTES - 1, OBJECT_BYTES),
        (OBJECT_BYTES + 5, len(LONG) - 2),
        (len(LONG) - 1, len(LONG) - 1),
    ):
        assert await content_of(ctx, file, first, last) == LONG[first : last + 1], (first, last)


async def test_a_model_gets_the_bytes_as_base64(ctx: ServiceContext) -> None:
    file = await stored(ctx, LONG)
    reader = RunFiles(ctx.database, FileCache(), ANN.tenant, 20_000_000, ctx.chunks)
    assert (await reader.load([file.id]))[file.id].data == base64.b64encode(LONG).decode()


async def test_the_same_bytes_of_a_tenant_are_one_blob(
    ctx: ServiceContext, s3: S3Server, deletion: FileObjectDeletion
) -> None:
    one, two = await stored(ctx, b"same"), await stored(ctx, b"same")
    assert one.blob_id == two.blob_id
    assert await deletion.run_once(older_than=0.0) == 1
    assert await s3.keys() == [f"of/holdfast/{ANN.tenant}/{one.blob_id}/0"]
    assert await content_of(ctx, two) == b"same"


async def test_tenants_share_no_object(ctx: ServiceContext, s3: S3Server) -> None:
    ours, theirs = await stored(ctx, b"same"), await stored(ctx, b"same", BEN)
    assert {key.split("/")[2] for key in await s3.keys()} == {ANN.tenant, BEN.tenant}
    with pytest.raises(NotFound):
        await read_file(ctx, ANN, theirs.id)
    stolen = replace(ours, blob_id=theirs.blob_id)
    with pytest.raises(NotFound):
        await content_of(ctx, stolen)


async def test_objects_are_deleted_after_their_row_is_marked(
    ctx: ServiceContext, s3: S3Server, deletion: FileObjectDeletion
) -> None:
    kept, unused = await stored(ctx, b"kept"), await stored(ctx, LONG)
    await delete_file(ctx, ANN, unused.id)
    assert await mark_unused(ctx.database) == 1
    assert await mark_unused(ctx.database) == 0
    assert len(await s3.keys()) == 3
    # The last request of an upload that broke off may still arrive.
    assert await deletion.run_once() == 0
    assert await deletion.run_once(older_than=0.0) == 1
    assert await s3.keys() == [f"of/holdfast/{ANN.tenant}/{kept.blob_id}/0"]
    assert await rows(ctx.database) == 1
    assert await content_of(ctx, kept) == b"kept"


async def test_bytes_that_come_again_while_they_are_deleted_are_kept(
    ctx: ServiceContext, deletion: FileObjectDeletion
) -> None:
    await delete_file(ctx, ANN, (await stored(ctx, LONG)).id)
    assert await mark_unused(ctx.database) == 1
    again = await stored(ctx, LONG)
    assert await deletion.run_once(older_than=0.0) == 1
    assert await content_of(ctx, again) == LONG


async def test_a_crash_between_the_steps_is_made_up_for(
    ctx: ServiceContext, s3: S3Server, deletion: FileObjectDeletion
) -> None:
    """After the objects are deleted and before the row is, and while only the first object is written."""
    file = await stored(ctx, LONG)
    await delete_file(ctx, ANN, file.id)
    await mark_unused(ctx.database)
    assert ctx.chunks is not None
    await ctx.chunks.remove(BlobKey(ANN.tenant, file.blob_id))
    killed = BlobKey(ANN.tenant, new_id())
    await ctx.file_bytes.begin(killed)
    await ctx.file_bytes.add(killed, 0, b"first")
    assert await mark_unused(ctx.database) == 1
    assert await deletion.run_once(older_than=0.0) == 2
    assert (await s3.keys(), await rows(ctx.database)) == ([], 0)


async def test_an_upload_that_still_runs_is_no_older_than_its_last_object(
    ctx: ServiceContext,
) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield LONG[:OBJECT_BYTES]
        await ctx.database.pool.execute("UPDATE blobs SET created_at = now() - interval '2 hours'")
        yield LONG[OBJECT_BYTES:] + LONG
        async with ctx.database.transaction() as connection:
            assert await blobs.delete_unused(connection, 3600, 100) == 0

    file = await upload(ctx, ANN, NewFile("a.bin", None), slow())
    assert await content_of(ctx, file) == LONG + LONG


async def test_an_upload_that_retention_has_deleted_is_refused_and_leaves_nothing(
    ctx: ServiceContext, s3: S3Server, deletion: FileObjectDeletion
) -> None:
    async def too_slow() -> AsyncIterator[bytes]:
        yield LONG[:OBJECT_BYTES]
        assert await mark_unused(ctx.database) == 1
        yield b"more"

    with pytest.raises(FilesUnavailable, match="Send the file again"):
        await upload(ctx, ANN, NewFile("a.bin", None), too_slow())
    assert await deletion.run_once(older_than=0.0) == 1
    assert (await s3.keys(), await rows(ctx.database), await rows(ctx.database, "files")) == (
        [],
        0,
        0,
    )


@pytest.mark.parametrize("sent", [100, OBJECT_BYTES, OBJECT_BYTES + 100, 2 * OBJECT_BYTES])
async def test_an_upload_that_breaks_off_leaves_nothing(
    ctx: ServiceContext, s3: S3Server, deletion: FileObjectDeletion, sent: int
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces((LONG + LONG)[:sent]):
            yield piece
        raise ConnectionError("the client is gone")

    with pytest.raises(ConnectionError):
        await upload(ctx, ANN, NewFile("a.bin", None), broken())
    await deletion.run_once(older_than=0.0)
    assert (await s3.keys(), await rows(ctx.database)) == ([], 0)


async def test_an_outage_changes_nothing_and_is_made_up_for(
    ctx: ServiceContext, s3: S3Server, deletion: FileObjectDeletion
) -> None:
    file, unused = await stored(ctx, b"kept"), await stored(ctx, b"unused")
    await delete_file(ctx, ANN, unused.id)
    await mark_unused(ctx.database)
    with s3.stopped():
        with pytest.raises(FilesUnavailable):
            await stored(ctx, b"new")
        with pytest.raises(FilesUnavailable):
            await content_of(ctx, file)
        assert await deletion.run_once(older_than=0.0) == 0
        assert await rows(ctx.database, "files") == 1
    # The unused bytes, and the upload that failed.
    assert await deletion.run_once(older_than=0.0) == 2
    assert await s3.keys() == [f"of/holdfast/{ANN.tenant}/{file.blob_id}/0"]
    assert await content_of(ctx, file) == b"kept"


async def test_a_model_request_waits_for_the_bucket_and_then_continues(
    ctx: ServiceContext, s3: S3Server
) -> None:
    file = await stored(ctx, b"needed")
    reader = RunFiles(ctx.database, FileCache(), ANN.tenant, 20_000_000, ctx.chunks)
    with s3.stopped():
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(reader.load([file.id]))
            with pytest.raises(FilesUnavailable):
                await content_of(ctx, file)
            assert not loading.done()
            s3.start()
            loaded = await loading
    assert loaded[file.id].data == base64.b64encode(b"needed").decode()


async def test_files_in_both_places_are_read_at_once(
    ctx: ServiceContext, in_postgres: ServiceContext, s3: S3Server
) -> None:
    older = await stored(in_postgres, LONG)
    newer = await stored(ctx, b"newer")
    again = await stored(ctx, LONG)
    assert again.blob_id == older.blob_id
    assert await content_of(ctx, older) == LONG
    assert await content_of(ctx, newer) == b"newer"
    reader = RunFiles(ctx.database, FileCache(), ANN.tenant, 20_000_000, ctx.chunks)
    assert len(await reader.load([older.id, newer.id])) == 2
    with pytest.raises(FilesUnavailable, match="HOLDFAST_BLOBS"):
        await content_of(in_postgres, newer)


async def test_a_bucket_is_checked_by_its_use(s3: S3Server) -> None:
    await s3.chunks().check()
    assert await s3.keys() == []
    with pytest.raises(FilesUnavailable):
        await s3.chunks("s3://unknown/of/holdfast").check()
