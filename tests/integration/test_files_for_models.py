"""Files in requests to models: loaded just before, bounded, and kept in memory; and the deletion of unused bytes."""

import base64
from collections.abc import AsyncIterator

import pytest

from app.clock import new_id
from app.commands.files.upload import upload
from app.commands.files.writing import NewFile
from app.domain.files.files import CHUNK_BYTES, StoredFile
from app.domain.ids import FileId, MessageId, Tenant
from app.domain.structs import replace
from app.domain.threads.messages import (
    Base64Source,
    Block,
    FileSource,
    Media,
    Message,
    Role,
    Text,
    ToolOutcome,
)
from app.runtime.inference.media_files import with_files
from app.runtime.ports.models import ModelRequest
from app.storage.files import blobs, files
from app.storage.postgres.database import Database
from app.workers.files.run_files import FileCache, RunFiles
from app.workers.periodic.retention import Retention, RetentionAges

from tests.support.replicas import ANN, an_agent, open_replica, Replica  # isort: skip
from app.llm.scripted.model import in_order, turn

pytestmark = pytest.mark.anyio

BYTES = bytes(range(256)) * ((2 * CHUNK_BYTES) // 256 + 3)


@pytest.fixture
async def replica(database_url: str) -> AsyncIterator[Replica]:
    async with open_replica(database_url, an_agent(), in_order(turn("Done."))) as opened:
        yield opened


async def stored(replica: Replica, content: bytes = BYTES) -> StoredFile:
    async def pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(content), 70_001):
            yield content[begin : begin + 70_001]

    return await upload(replica.ctx, ANN, NewFile("a.bin", "image/x"), pieces())


def asking(*blocks: Block) -> ModelRequest:
    message = Message(id=MessageId(new_id()), role=Role.USER, content=(Text("look"), *blocks))
    return ModelRequest(system_prompt="", messages=[message])


def image(file_id: str) -> Media:
    return Media("image", FileSource(FileId(file_id)))


def shown(request: ModelRequest) -> list[Block]:
    return [block for message in request.messages for block in message.content][1:]


async def test_a_file_is_in_the_request_as_base64(replica: Replica) -> None:
    file = await stored(replica)
    reader = RunFiles(replica.database, FileCache(), ANN.tenant)
    whole = Media("image", Base64Source("image/x", base64.b64encode(BYTES).decode()), "a.bin")
    assert shown(await with_files(reader, asking(image(file.id)))) == [whole]
    inside = ToolOutcome("c1", (image(file.id),))  # type: ignore[arg-type]
    assert shown(await with_files(reader, asking(inside))) == [replace(inside, content=(whole,))]


async def test_files_that_are_missing_or_too_large_together_become_placeholders(
    replica: Replica,
) -> None:
    one, two = await stored(replica, b"x" * 600), await stored(replica, b"y" * 600)
    reader = RunFiles(replica.database, FileCache(), ANN.tenant, max_inline_bytes=1000)
    found = shown(await with_files(reader, asking(image(one.id), image(two.id), image(new_id()))))
    assert [type(block) for block in found] == [Text, Media, Text]
    strangers = RunFiles(replica.database, FileCache(), Tenant("other"))
    [block] = shown(await with_files(strangers, asking(image(one.id))))
    assert isinstance(block, Text)


async def test_a_request_without_files_is_not_changed(replica: Replica) -> None:
    request = asking(Text("more"))
    reader = RunFiles(replica.database, FileCache(), ANN.tenant)
    assert await with_files(reader, request) is request


async def test_bytes_are_read_once_and_the_oldest_are_removed_first(replica: Replica) -> None:
    one, two = await stored(replica, b"x" * 600), await stored(replica, b"y" * 600)
    cache = FileCache(max_bytes=1000)
    reader = RunFiles(replica.database, cache, ANN.tenant)
    await reader.load([one.id])
    kept = cache.get(ANN.tenant, one.sha256)
    assert kept == base64.b64encode(b"x" * 600).decode()
    assert cache.get(Tenant("other"), one.sha256) is None
    await reader.load([two.id])
    assert cache.get(ANN.tenant, one.sha256) is None
    assert cache.get(ANN.tenant, two.sha256) is not None


async def test_bytes_without_a_file_are_deleted_after_an_hour(
    replica: Replica, database: Database
) -> None:
    kept, unused = await stored(replica, b"kept"), await stored(replica, b"unused")
    async with database.transaction() as connection:
        assert await files.remove(connection, ANN.tenant, unused.id)
        assert await blobs.delete_unused(connection, 3600, 100) == 0
    await blobs.begin(database.pool, blobs.BlobKey(ANN.tenant, new_id()), "pg")
    await database.pool.execute("UPDATE blobs SET created_at = now() - interval '2 hours'")
    async with database.transaction() as connection:
        assert await blobs.delete_unused(connection, 3600, 100) == 2
    assert await database.pool.fetchval("SELECT count(*) FROM blob_chunks") == 1
    reader = RunFiles(replica.database, FileCache(), ANN.tenant)
    assert (await reader.load([kept.id]))[kept.id].data == base64.b64encode(b"kept").decode()


async def test_an_upload_that_no_thread_refers_to_is_deleted_at_its_age(
    replica: Replica, database: Database
) -> None:
    used, unused, young = [await stored(replica, text) for text in (b"used", b"unused", b"young")]
    run = await replica.start()
    await run.ended()
    async with database.transaction() as connection:
        await files.refer(connection, ANN.tenant, run.thread_id, [used.id])
    long_ago = "UPDATE files SET created_at = now() - interval '2 hours' WHERE id <> $1"
    await database.pool.execute(long_ago, young.id)
    async with database.transaction() as connection:
        assert await files.delete_unreferred(connection, 3600, 100) == 1
        left = await files.get_all(connection, ANN.tenant, [used.id, unused.id, young.id])
    assert set(left) == {used.id, young.id}


async def test_retention_of_files_is_off_unless_an_age_is_set(database: Database) -> None:
    for age, is_there in ((None, False), (3600.0, True)):
        retention = Retention(database, RetentionAges(files=age), interval=60)
        assert ("delete_files" in await retention.run_once()) is is_there


async def test_equal_bytes_of_two_tenants_are_stored_twice(replica: Replica) -> None:
    one = await stored(replica, b"same")
    bob = replace(ANN, tenant=Tenant("bob"))

    async def pieces() -> AsyncIterator[bytes]:
        yield b"same"

    other = await upload(replica.ctx, bob, NewFile(None, None), pieces())
    assert (one.sha256, one.blob_id == other.blob_id) == (other.sha256, False)
