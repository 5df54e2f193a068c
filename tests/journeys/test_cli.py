"""The command line as a person uses it: real processes, piped answers, signals, exit codes."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.commands import holdfast
from tests.support.databases import Databases
from tests.support.servers import Server, serving
from tests.support.streams import text_of
from tests.support.terminals import started

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "terminal" / "agents.toml"
NOBODY = "http://127.0.0.1:9"
LONG = "word " * 400
LINES = re.compile(r"^  (curl -N .*)$.*^  (curl -s .*)$\n", re.M | re.S)


@pytest.fixture(scope="module")
async def demo(postgres: Databases) -> AsyncIterator[Server]:
    async with postgres.fresh() as url, serving(url, agents=AGENTS) as server:
        yield server


async def test_a_run_asks_shows_the_call_and_goes_on(demo: Server) -> None:
    done = await holdfast("run", "delete /tmp/x", url=demo.base, stdin="approve\n")
    assert done.code == 0, done.err
    assert done.out.startswith("I will delete /tmp/x.")
    assert "answered: Deleted /tmp/x\n" in done.out
    assert '    path = "/tmp/x"\napprove / edit / reject / respond' in done.err


@pytest.mark.parametrize(
    ("answers", "read_by_the_model"),
    [
        ('edit\n{"path": "/tmp/other"}\n', "Deleted /tmp/other"),
        ("r\nnot this one\n", "Denied: not this one"),
        ("s\nit is gone already\n", "it is gone already"),
        ('perhaps\ne\nno json\n{"path": "/tmp/z"}\n', "Deleted /tmp/z"),
        ('e\n{"pfad": "/tmp/other"}\na\n', "Deleted /tmp/x"),
    ],
    ids=["edit", "reject", "respond", "a slip of the hand", "arguments that the tool can't take"],
)
async def test_the_run_goes_on_with_what_was_answered(
    demo: Server, answers: str, read_by_the_model: str
) -> None:
    done = await holdfast("run", "delete /tmp/x", url=demo.base, stdin=answers)
    assert done.code == 0, done.err
    assert read_by_the_model in done.out


async def test_yes_approves_without_asking(demo: Server) -> None:
    done = await holdfast("run", "delete /tmp/x", "--yes", url=demo.base)
    assert done.code == 0, done.err
    assert "Deleted /tmp/x" in done.out
    assert "approve / edit" not in done.err


async def test_a_thread_is_continued(demo: Server) -> None:
    first = await holdfast("run", "Hello.", "--agent", "demo", url=demo.base)
    [thread] = re.findall(r"of thread (\S+)", first.err)
    second = await holdfast("run", "And again.", "--thread", thread, url=demo.base)
    assert f"of thread {thread}" in second.err
    async with demo.client() as client:
        messages = (await client.get(f"/v1/threads/{thread}/messages"))["items"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2


async def test_a_run_that_nobody_answers_waits_for_decide(demo: Server) -> None:
    left = await holdfast("run", "delete /tmp/x", url=demo.base)
    assert left.code == 6
    [line] = re.findall(r"holdfast decide (\S+) TICKET approve", left.err)
    [ticket] = re.findall(r"TICKET is one of: (\S+)", left.err)
    decided = await holdfast("decide", line, ticket, "reject", "--reason", "no", url=demo.base)
    assert (decided.code, decided.out) == (0, f"{ticket}: reject accepted\n")
    again = await holdfast("decide", line, ticket, "approve", url=demo.base)
    assert again.code == 7
    assert "ticket_already_decided" in again.err
    assert len(again.err.splitlines()) == 1


async def test_an_answer_that_came_too_late_is_told_and_the_run_goes_on(demo: Server) -> None:
    async with (
        started("run", "delete /tmp/x", HOLDFAST_URL=demo.base) as run,
        demo.client() as client,
    ):
        await run.printed(re.compile("quit > $"))
        [run_id] = re.findall(r"run (\S+) of thread", run.log)
        await client.decide(await client.run(run_id), "reject", reason="somebody else's no")
        run.type("approve")
        assert await run.gone() == 0
    assert "ticket_already_decided" in run.log
    assert "Denied: somebody else's no" in run.log


async def test_decide_edits_and_responds(demo: Server) -> None:
    for action, option, value, told in [
        ("edit", "--arguments", '{"path": "/tmp/other"}', "Deleted /tmp/other"),
        ("respond", "--result", '"by hand"', "by hand"),
    ]:
        async with demo.client() as client:
            started_ = await client.start("demo", "delete /tmp/x")
            run_id = started_["run_id"]
            [ticket] = (await client.settled(run_id))["waiting"]["ticket_ids"]
            done = await holdfast("decide", run_id, ticket, action, option, value, url=demo.base)
            assert done.code == 0, done.err
            assert told in (await client.settled(run_id))["final_output"]
    wrong = await holdfast("decide", run_id, ticket, "edit", "--arguments", "{", url=demo.base)
    assert wrong.code == 2
    assert "isn't valid JSON" in wrong.err


async def test_tail_tells_all_of_a_run(demo: Server) -> None:
    async with demo.client() as client:
        run = await client.start("demo", "Hello.")
        await client.settled(run["run_id"])
        log = await client.log(f"/v1/runs/{run['run_id']}")
    exact = await holdfast("tail", run["run_id"], "--json", url=demo.base)
    assert [json.loads(line) for line in exact.out.splitlines()] == log
    readable = await holdfast("tail", run["run_id"], url=demo.base)
    assert len(readable.out.splitlines()) == len(log)
    assert re.search(r"^ +1 \d\d:\d\d:\d\d\.\d{3} +run_created +agent_id=", readable.out, re.M)


async def test_tail_stays_while_a_run_waits_and_ends_with_it(demo: Server) -> None:
    async with demo.client() as client:
        run = await client.start("demo", "delete /tmp/x")
        waiting = await client.settled(run["run_id"])
        async with started("tail", run["run_id"], HOLDFAST_URL=demo.base) as tail:
            await tail.printed(re.compile(r"run_finish.*suspended"))
            await client.decide(waiting, "approve")
            await tail.printed(re.compile(r"run_finish.*natural_end"))
            assert await tail.gone() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["CALL add {} CALL add {}", "--agent", "limited"], 3, "budget_exceeded (1 rounds"),
        (["Hello.", "--agent", "broken"], 1, "The run is done: failed"),
        (["Hello.", "--agent", "nobody"], 7, "agent_not_found"),
        (["Hello.", "--url", NOBODY], 7, f"No server answers at {NOBODY}"),
        (["Hello.", "--url", "nonsense"], 7, "No server answers at nonsense"),
        (["Hello.", "--key", "schlüssel"], 7, "isn't valid"),
    ],
)
async def test_the_exit_code_says_how_it_ended(
    demo: Server, arguments: list[str], code: int, said: str
) -> None:
    done = await holdfast("run", *arguments, url=demo.base)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err


async def test_a_run_that_is_not_there_is_one_sentence(demo: Server) -> None:
    for command in (["tail", "x"], ["decide", "x", "y", "approve"]):
        refused = await holdfast(*command, url=demo.base)
        assert refused.code == 7
        assert len(refused.err.splitlines()) == 1


# --- signals and cuts -----------------------------------------------------------------------------


async def test_text_comes_as_it_is_made_and_ctrl_c_cancels(demo: Server) -> None:
    async with started("run", LONG, "--agent", "slow", HOLDFAST_URL=demo.base) as run:
        await run.printed(re.compile("word word"))
        run.interrupt()
        await run.printed(re.compile("Cancelling the run"))
        assert await run.gone() == 5
    assert "cancelled" in run.log
    assert "Traceback" not in run.log
    assert run.log.count("word") < 400
    await _is_cancelled(demo, run.log)


async def test_ctrl_c_at_a_question_cancels_too(demo: Server) -> None:
    async with started("run", "delete /tmp/x", HOLDFAST_URL=demo.base) as run:
        await run.printed(re.compile("quit > $"))
        run.interrupt()
        assert await run.gone() == 5
    await _is_cancelled(demo, run.log)


async def test_a_second_ctrl_c_only_leaves(demo: Server) -> None:
    async with started("run", LONG, "--agent", "slow", HOLDFAST_URL=demo.base) as run:
        await run.printed(re.compile("word word"))
        demo.process.send_signal(19)
        try:
            run.interrupt()
            await run.printed(re.compile("Cancelling the run"))
            run.interrupt()
            assert await run.gone() == 130
        finally:
            demo.process.send_signal(18)
    assert "Traceback" not in run.log


async def _is_cancelled(server: Server, log: str) -> None:
    [run_id] = re.findall(r"run (\S+) of thread", log)
    async with server.client() as client:
        assert (await client.run(run_id))["outcome"] == "cancelled"


async def test_a_cut_connection_is_taken_up_where_it_broke(database_url: str) -> None:
    prompt = " ".join(f"w{number}" for number in range(40))
    async with serving(database_url, agents=AGENTS) as first:
        port = first.base.rpartition(":")[2]
        async with started("run", prompt, "--agent", "slow", HOLDFAST_URL=first.base) as run:
            await run.printed(re.compile("w5"))
            first.kill()
            await first.gone()
            await run.printed(re.compile("the connection broke; reconnecting"))
            async with serving(database_url, agents=AGENTS, port=port) as second:
                assert await run.gone() == 0, run.log
                [run_id] = re.findall(r"run (\S+) of thread", run.log)
                async with second.client() as client:
                    log = await client.log(f"/v1/runs/{run_id}")
    assert f"You said: {prompt}" in text_of(log)
    # What was shown is what the log has, each event once, with the broken-off beginning.
    shown = re.sub(r"\n?\[[^]\n]*\]\n|^run .*\n", "", run.log, flags=re.M)
    said = "".join(event["delta"] for event in log if event["event_type"] == "text_delta")
    assert shown.replace("\n", "") == said.replace("\n", "")


# --- what a server prints -------------------------------------------------------------------------


async def test_the_lines_that_a_server_prints_work_as_printed(database_url: str) -> None:
    async with serving(database_url) as server:
        start, approve = (await server.printed(LINES)).groups()
        streamed = await _shell(start)
        assert '"event_type":"run_finish"' in streamed
        assert '"termination":{"type":"suspended"}' in streamed
        assert json.loads(await _shell(approve))["results"][0]["status"] == "accepted"
        assert "demo (plays a script)" in server.log


async def test_the_lines_of_a_server_with_keys_name_the_key(
    database_url: str, tmp_path: Path
) -> None:
    made = await holdfast("keys", "new", "--subject", "me", "--scope", "admin")
    key = made.err.splitlines()[0].rpartition(" ")[2]
    file = tmp_path / "keys.toml"
    file.write_text(made.out)
    async with serving(database_url, api_keys_file=file) as server:
        start, approve = (await server.printed(LINES)).groups()
        assert "unauthenticated" in await _shell(start)
        exported = f"export HOLDFAST_API_KEY={shlex.quote(key)}; "
        assert '"event_type":"run_finish"' in await _shell(exported + start)
        assert '"accepted"' in await _shell(exported + approve)
        refused = await holdfast("run", "Hello.", url=server.base)
        assert refused.code == 7
        assert "unauthenticated" in refused.err
        known = await holdfast("run", "Hello.", url=server.base, HOLDFAST_API_KEY=key)
        assert known.code == 0, known.err


async def _shell(line: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode()
