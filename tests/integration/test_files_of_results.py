"""Files in the results of tools: the model reads them, clients get their ids, and the log has no bytes."""

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.clock import new_id
from app.domain.ids import CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.slices import PageRequest
from app.domain.threads.messages import Base64Source, FileSource, Media, Message, Role
from app.domain.tools.tool_calls import (
    ToolResult,
    UnreportedOutcome,
    outcome_from_json,
    outcome_to_json,
)
from app.llm.scripted.model import Call, Fail, ScriptInOrder, in_order, turn
from app.queries.files.artifacts import list_artifacts
from app.runtime.ports.tool_context import ToolContext
from app.storage.files import files
from app.tools.functions.decorator import FunctionTool, tool
from app.tools.functions.result_files import MAX_RESULT_FILES, ResultWithFiles, ToolFile
from tests.support.invariants import broken_invariants
from tests.support.replicas import ANN, Replica, Run, an_agent, of_type, open_replica

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
IN_BASE64 = base64.b64encode(PNG).decode()
Drawing = Callable[[ToolContext], Awaitable[ResultWithFiles]]


def drawing(function: Drawing) -> FunctionTool[..., Any]:
    async def draw(ctx: ToolContext) -> ResultWithFiles:
        return await function(ctx)

    return tool(effect="idempotent")(draw)


def a_call() -> ScriptInOrder:
    return in_order(turn(Call(tool="draw", arguments={}, id=CallId("c1"))), turn("I see it."))


def result_in(script: ScriptInOrder) -> Message:
    [result] = [each for each in script.requests[-1].messages if each.role is Role.TOOL]
    return result


async def result_in_log(run: Run) -> Message:
    [result] = [each.message for each in await run.log() if each.message.role is Role.TOOL]
    return result


async def test_an_image_of_a_tool_reaches_the_model_and_clients(database_url: str) -> None:
    async def draw(ctx: ToolContext) -> ResultWithFiles:
        return ResultWithFiles({"points": 2}, [ToolFile("chart.png", PNG)])

    script = a_call()
    async with open_replica(database_url, an_agent(drawing(draw)), script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        logged = await result_in_log(run)
        [(_, artifact)] = await list_artifacts(replica.ctx, ANN, run.id, PageRequest())
    assert artifact.id is not None
    shown = result_in(script)
    assert shown.text == '{"points":2}'
    assert shown.content[1:] == (Media("image", Base64Source("image/png", IN_BASE64), "chart.png"),)
    assert logged.content[1:] == (Media("image", FileSource(artifact.id), "chart.png"),)  # type: ignore[arg-type]
    [done] = of_type(emitted, "tool_call_done")
    assert done["result"] == {
        "text": '{"points":2}',
        "status": "done",
        "outcome": "succeeded",
        "data": {"points": 2},
        "media": [
            {
                "type": "image",
                "source": {"type": "file", "file_id": artifact.id},
                "title": "chart.png",
            }
        ],
    }
    assert await broken_invariants(database_url) == {}


async def test_a_tool_without_a_context_returns_files(database_url: str) -> None:
    @tool(effect="read")
    def draw() -> ResultWithFiles:
        return ResultWithFiles(None, [ToolFile("chart.png", PNG)])

    script = a_call()
    async with open_replica(database_url, an_agent(draw), script) as replica:
        await (await replica.start()).ended()
    shown = result_in(script)
    assert shown.text == "[chart.png]"
    assert [type(block) for block in shown.content[1:]] == [Media]


async def test_a_model_is_told_the_id_of_a_file_that_it_cannot_read(database_url: str) -> None:
    async def draw(ctx: ToolContext) -> ResultWithFiles:
        return ResultWithFiles(
            "drawn", [ToolFile("all.zip", b"PK\x03\x04"), ToolFile("a.png", PNG)]
        )

    script = a_call()
    async with open_replica(database_url, an_agent(drawing(draw)), script) as replica:
        run = await replica.start()
        await run.ended()
        names = {
            one.name: one.id
            for _, one in await list_artifacts(replica.ctx, ANN, run.id, PageRequest())
        }
    shown = result_in(script)
    assert shown.text.startswith(
        "drawn\n[the file 'all.zip' of type application/octet-stream, 4 bytes"
    )
    assert str(names["all.zip"]) in shown.text
    assert [type(block) for block in shown.content[1:]] == [Media]


async def test_a_file_that_was_saved_before_can_be_returned_by_its_id(database_url: str) -> None:
    async def draw(ctx: ToolContext) -> ResultWithFiles:
        saved = await ctx.save_file("chart.png", PNG)
        return ResultWithFiles("drawn", [saved])

    script = a_call()
    async with open_replica(database_url, an_agent(drawing(draw)), script) as replica:
        run = await replica.start()
        emitted = await run.ended()
    assert [type(block) for block in result_in(script).content[1:]] == [Media]
    assert len(of_type(emitted, "artifact_saved")) == 1


async def test_a_thread_refers_to_the_files_of_another_one_that_its_tools_return(
    database_url: str,
) -> None:
    saved: list[str] = []

    async def draw(ctx: ToolContext) -> ResultWithFiles:
        saved.extend([await ctx.save_file("chart.png", PNG)] if not saved else [])
        return ResultWithFiles("drawn", saved)

    calling = turn(Call(tool="draw", arguments={}, id=CallId("c1")))
    script = in_order(calling, turn("One."), calling, turn("Two."))
    async with open_replica(database_url, an_agent(drawing(draw)), script) as replica:
        runs = [await replica.start() for _ in range(1)]
        await runs[0].ended()
        runs.append(await replica.start())
        await runs[1].ended()
        for run in runs:
            assert await ids_of_thread(replica, run) == saved


async def ids_of_thread(replica: Replica, run: Run) -> list[str]:
    async with replica.database.reading() as connection:
        page = await files.page(connection, ANN.tenant, run.thread_id, PageRequest())
    return [file.id for file in page]


REFUSED: dict[str, tuple[ResultWithFiles, str]] = {
    "no bytes": (ResultWithFiles("x", [ToolFile("a.png", b"")]), "no bytes"),
    "another type": (
        ResultWithFiles("x", [ToolFile("a.png", PNG, "image/gif")]),
        "aren't image/gif",
    ),
    "an unknown id": (ResultWithFiles("x", [new_id()]), "There is no file"),
    "too many": (
        ResultWithFiles("x", [ToolFile("a.png", PNG)] * (MAX_RESULT_FILES + 1)),
        f"at most {MAX_RESULT_FILES} files",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_result_whose_files_cannot_be_saved_is_an_error(
    database_url: str, case: str
) -> None:
    returned, expected = REFUSED[case]

    async def draw(ctx: ToolContext) -> ResultWithFiles:
        return returned

    script = a_call()
    async with open_replica(database_url, an_agent(drawing(draw)), script) as replica:
        emitted = await (await replica.start()).ended()
    [done] = of_type(emitted, "tool_call_done")
    assert done["result"]["outcome"] == "failed"
    assert expected in done["result"]["text"]


async def test_media_that_a_provider_refuses_are_left_out_of_one_more_request(
    database_url: str,
) -> None:
    async def draw(ctx: ToolContext) -> ResultWithFiles:
        return ResultWithFiles("drawn", [ToolFile("chart.png", PNG)])

    refusal = failed(FailureKind.INVALID_REQUEST, "HTTP 400: unknown variant `image_url`")
    calling = turn(Call(tool="draw", arguments={}, id=CallId("c1")))
    script = in_order(calling, turn(Fail(refusal)), turn("I go on."), turn("And on."))
    async with open_replica(database_url, an_agent(drawing(draw)), script) as replica:
        run = await replica.start()
        emitted = await run.ended()
        assert emitted[-1]["outcome"] == "succeeded"
    [_, refused, repeated] = script.requests
    assert [type(block) for block in refused.messages[-1].content[1:]] == [Media]
    notice = "[an image called 'chart.png' of type image/png that can't be shown to you]"
    assert repeated.messages[-1].text == f"drawn{notice}"


def test_a_stored_outcome_keeps_its_media() -> None:
    media = (Media("image", FileSource("f1"), "chart.png"),)  # type: ignore[arg-type]
    result = ToolResult.success("draw", "drawn")
    for each in (result, ToolResult("draw", result.status, "drawn", media=media)):
        stored = outcome_to_json(UnreportedOutcome(each))
        assert outcome_from_json("draw", stored) == UnreportedOutcome(each)
    assert "media" not in outcome_to_json(UnreportedOutcome(result))["result"]
