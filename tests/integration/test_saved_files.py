"""Files that tools save: artifacts of their run, once for each call, fenced, and deleted with their thread."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from app.api.runs.lineage import ArtifactOut
from app.clock import SystemClock
from app.commands.files.delete import delete_file
from app.commands.threads.threads import ChildThreads, delete_thread
from app.commands.tool_owner import ToolOwner
from app.domain.agents.backend_results import OUTPUT_KEY, Artifact
from app.domain.errors import NotFound, OwnershipLost, TooLarge
from app.domain.files.files import CHUNK_BYTES
from app.domain.ids import CallId, FileId
from app.domain.slices import Order, PageRequest
from app.domain.threads.messages import Role
from app.llm.scripted.model import Call, in_order, turn
from app.queries.files.artifacts import list_artifacts
from app.queries.files.reading import bytes_of, list_files, read_file
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Tool
from app.storage.files import blobs
from app.tools.functions.decorator import tool
from app.workers.files.tool_files import StoredToolFiles
from tests.support.conditions import eventually
from tests.support.contents import contents
from tests.support.invariants import broken_invariants
from tests.support.replicas import ANN, Replica, Run, an_agent, of_type, open_replica, types_of

pytestmark = pytest.mark.anyio

LONG = bytes(range(256)) * (2 * CHUNK_BYTES // 256 + 40)
REPORT = b"%PDF-1.4 a report"
_STORED = "SELECT count(*) FROM blobs"
Saving = Callable[[ToolContext], Awaitable[str]]


def call(id: str = "c1", name: str = "report") -> Call:
    return Call(tool=name, arguments={}, id=CallId(id))


def saving(save: Saving, *, name: str = "report") -> Tool:
    """An idempotent tool that saves files."""

    async def function(ctx: ToolContext) -> str:
        return await save(ctx)

    return tool(name=name, effect="idempotent")(function)


async def in_pieces(content: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), 70_001):
        yield content[begin : begin + 70_001]


async def artifacts_of(run: Run) -> list[Artifact]:
    page = await list_artifacts(run.replica.ctx, ANN, run.id, PageRequest(order=Order.ASC))
    return [artifact for _, artifact in page]


async def content_of(replica: Replica, file_id: str) -> bytes:
    file = await read_file(replica.ctx, ANN, FileId(file_id))
    pieces = bytes_of(replica.ctx.file_bytes, ANN.tenant, file, 0, file.size - 1)
    return b"".join([piece async for piece in pieces])


async def results_of(run: Run) -> list[str]:
    return [one.message.text for one in await run.log() if one.message.role is Role.TOOL]


async def test_a_saved_file_is_an_artifact_of_the_run_and_an_event(database_url: str) -> None:
    async def save(ctx: ToolContext) -> str:
        return await ctx.save_file("data.bin", in_pieces(LONG), media_type="application/x-data")

    script = in_order(turn(call()), turn("Done."))
    async with open_replica(database_url, an_agent(saving(save)), script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        [artifact] = await artifacts_of(run)
        assert artifact.id is not None
        stored = await content_of(replica, artifact.id)
        of_thread = await list_files(replica.ctx, ANN, run.thread_id, PageRequest())
        results = await results_of(run)
    assert stored == LONG
    assert results == [artifact.id]
    assert (artifact.name, artifact.media_type) == ("data.bin", "application/x-data")
    assert artifact.saved is not None
    assert (artifact.saved.size, artifact.saved.call_id) == (len(LONG), "c1")
    shown_in_list = ArtifactOut.of(artifact)
    assert shown_in_list.content_url == f"/v1/files/{artifact.id}/content"
    assert (shown_in_list.size, shown_in_list.tool_call_id) == (len(LONG), "c1")
    assert [(one.id, one.created_by) for one in of_thread] == [(artifact.id, "ann")]
    [event] = of_type(emitted, "artifact_saved")
    shown = {key: event[key] for key in ("tool_call_id", "file_id", "name", "size", "sha256")}
    assert shown == {
        "tool_call_id": "c1",
        "file_id": artifact.id,
        "name": "data.bin",
        "size": len(LONG),
        "sha256": artifact.saved.sha256,
    }
    assert types_of(emitted).index("artifact_saved") < types_of(emitted).index("tool_call_done")
    assert await broken_invariants(database_url) == {}


async def test_a_tool_reads_a_file_in_pieces(database_url: str) -> None:
    read: list[object] = []

    async def save(ctx: ToolContext) -> str:
        file = await ctx.open_file(await ctx.save_file("data.bin", LONG))
        sizes = [len(piece) async for piece in file]
        read.extend([max(sizes), len(sizes), await file.read() == LONG, file.name, file.size])
        for unknown in ("no-id", "00000000-0000-4000-8000-000000000000"):
            try:
                await ctx.open_file(unknown)
            except NotFound as error:
                read.append(error.code)
        return "read"

    script = in_order(turn(call()), turn("Done."))
    async with open_replica(database_url, an_agent(saving(save)), script) as replica:
        await (await replica.start()).ended()
    assert read == [
        *(CHUNK_BYTES, 3, True, "data.bin", len(LONG)),
        *("file_not_found", "file_not_found"),
    ]


async def test_equal_files_of_one_call_are_one_artifact(database_url: str) -> None:
    async def save(ctx: ToolContext) -> str:
        same = await asyncio.gather(*(ctx.save_file("a.pdf", REPORT) for _ in range(3)))
        await ctx.save_file("b.pdf", REPORT)
        await ctx.save_file("a.pdf", REPORT + b"!")
        return str(len(set(same)))

    script = in_order(turn(call("c1")), turn(call("c2")), turn("Done."))
    async with open_replica(database_url, an_agent(saving(save)), script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        made = await artifacts_of(run)
        results = await results_of(run)
        assert await replica.database.pool.fetchval(_STORED) == 2
    assert results == ["1", "1"]
    assert [one.name for one in made] == ["a.pdf", "b.pdf", "a.pdf"] * 2, "three of each call"
    assert {one.media_type for one in made} == {"application/pdf"}
    assert [one["file_id"] for one in of_type(emitted, "artifact_saved")] == [
        one.id for one in made
    ]


async def test_a_call_that_another_worker_repeats_has_its_file_once(database_url: str) -> None:
    saved, may_end = asyncio.Event(), asyncio.Event()

    async def save(ctx: ToolContext) -> str:
        file_id = await ctx.save_file("report.pdf", REPORT)
        saved.set()
        await may_end.wait()
        return file_id

    agent = an_agent(saving(save))
    async with open_replica(database_url, agent, in_order(turn(call()))) as first:
        run = await first.start()
        await asyncio.wait_for(saved.wait(), 60)
        await first.kill()
    may_end.set()
    async with open_replica(database_url, agent, in_order(turn("Done."))) as second:
        run = second.same(run)
        emitted = await run.ended()
        made = await artifacts_of(run)
        results = await results_of(run)
        assert await second.database.pool.fetchval(_STORED) == 1
    assert len(of_type(emitted, "artifact_saved")) == 1
    assert [one.id for one in made] == results


async def test_an_attempt_that_lost_the_run_saves_nothing(database_url: str) -> None:
    script = in_order(turn("Done."))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await run.ended()
        record = await run.now()
        before = await contents(replica.database.pool)
        for attempt in (record.attempt - 1, record.attempt):
            owner = ToolOwner(record.tenant, run.id, run.thread_id, attempt)
            files = StoredToolFiles(replica.database, replica.outgoing, owner, 20_000_000)
            with pytest.raises(OwnershipLost):
                await files.save(CallId("c1"), "key", "a.bin", in_pieces(LONG), None)
        after = await contents(replica.database.pool)
        made = await artifacts_of(run)
    names = ("blobs", "blob_chunks", "files", "file_threads", "saved_files", "events")
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
    assert made == []


REFUSED: dict[str, tuple[Saving, str]] = {
    "empty": (lambda ctx: ctx.save_file("a", b""), "file_empty"),
    "another type": (
        lambda ctx: ctx.save_file("a", REPORT, media_type="image/png"),
        "media_type_mismatch",
    ),
    "no name": (lambda ctx: ctx.save_file("", REPORT), "printable characters"),
    "a line in the name": (lambda ctx: ctx.save_file("a\nb", REPORT), "printable characters"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refused_file_fails_the_call_and_leaves_nothing(
    database_url: str, case: str
) -> None:
    save, expected = REFUSED[case]
    script = in_order(turn(call()), turn("Done."))
    async with open_replica(database_url, an_agent(saving(save)), script) as replica:
        run = await replica.start()
        await run.ended()
        [result] = await results_of(run)
        assert await artifacts_of(run) == []
        assert await replica.database.pool.fetchval(_STORED) == 0
    assert expected in result


async def test_a_file_beyond_the_limit_leaves_nothing(database_url: str) -> None:
    script = in_order(turn("Done."))
    async with open_replica(database_url, an_agent(), script) as replica:
        run = await replica.start()
        await run.ended()
        owner = ToolOwner(ANN.tenant, run.id, run.thread_id, 1)
        files = StoredToolFiles(replica.database, replica.outgoing, owner, len(LONG) - 1)
        with pytest.raises(TooLarge):
            await files.save(CallId("c1"), "key", "a.bin", in_pieces(LONG), None)
        assert await replica.database.pool.fetchval(_STORED) == 0


async def test_a_background_task_saves_files_of_its_run(database_url: str) -> None:
    async def save(ctx: ToolContext) -> str:
        return await ctx.save_file("report.pdf", REPORT)

    agent = an_agent(saving(save), background=["report"])
    script = in_order(turn(call()), turn("I wait."), turn("It is done."))
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        [artifact] = await artifacts_of(run)
        assert artifact.id is not None
        assert await content_of(replica, artifact.id) == REPORT
    [event] = of_type(emitted, "artifact_saved")
    assert (event["file_id"], event["tool_call_id"]) == (artifact.id, "c1")
    assert await broken_invariants(database_url) == {}


async def test_files_are_listed_before_what_a_remote_agent_made(database_url: str) -> None:
    async def save(ctx: ToolContext) -> str:
        await ctx.save_file("1.pdf", REPORT)
        return await ctx.save_file("2.pdf", REPORT)

    made = [{"id": "draft", "content": "a draft"}]
    state = {"extensions": {OUTPUT_KEY: {"artifacts": made}}}
    script = in_order(turn(call()), turn("Done."))
    async with open_replica(database_url, an_agent(saving(save)), script) as replica:
        run = await replica.start()
        await run.ended()
        await replica.database.pool.execute(
            "UPDATE runs SET state = $2::jsonb WHERE id = $1", run.id, json.dumps(state)
        )
        names: list[str | None] = []
        after: tuple[int, ...] | None = None
        while after is None or names[-1] != "draft":
            requested = PageRequest(order=Order.ASC, limit=1, after=after)
            [(number, artifact)] = await list_artifacts(replica.ctx, ANN, run.id, requested)
            names.append(artifact.name or artifact.id)
            after = (number,)
        await delete_file(replica.ctx, ANN, FileId((await artifacts_of(run))[0].id or ""))
        left = [one.name or one.id for one in await artifacts_of(run)]
    assert names == ["1.pdf", "2.pdf", "draft"]
    assert left == ["2.pdf", "draft"]


async def test_saved_files_are_deleted_with_their_thread(database_url: str) -> None:
    async def save(ctx: ToolContext) -> str:
        return await ctx.save_file("report.pdf", REPORT)

    script = in_order(turn(call()), turn("Done."))
    async with open_replica(database_url, an_agent(saving(save)), script) as replica:
        run = await replica.start()
        await run.ended()

        async def is_idle() -> bool:
            return (await run.now()).is_done

        await eventually(is_idle)
        await delete_thread(replica.ctx, ANN, run.thread_id, ChildThreads.REJECT)
        left = await contents(replica.database.pool)
        assert [left[name] for name in ("files", "file_threads", "saved_files")] == [[], [], []]
        long_ago = SystemClock().now() - timedelta(hours=2)
        await replica.database.pool.execute("UPDATE blobs SET created_at = $1", long_ago)
        async with replica.database.transaction() as connection:
            assert await blobs.delete_unused(connection, 3600, 100) == 1
