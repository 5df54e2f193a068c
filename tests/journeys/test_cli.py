"""The command line as a person uses it: real processes, piped answers, signals, exit codes."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.commands import holdfast
from tests.support.databases import Databases
from tests.support.envelopes import untimed
from tests.support.servers import Server, serving
from tests.support.streams import text_of
from tests.support.terminals import started

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "terminal" / "agents.toml"
UNUSED_ADDRESS = "http://127.0.0.1:9"
LONG = "word " * 400
LINES = re.compile(r"^  (\S*holdfast .*?) +# .*$\n", re.M)


@pytest.fixture(scope="module")
async def demo(postgres: Databases) -> AsyncIterator[Server]:
    async with postgres.fresh() as url, serving(url, agents=AGENTS) as server:
        yield server


async def test_a_run_shows_the_call_asks_and_continues(demo: Server) -> None:
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
    ids=["edit", "reject", "respond", "invalid input first", "invalid arguments first"],
)
async def test_the_run_continues_with_the_typed_answer(
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


async def test_a_thread_is_created_and_continued_by_a_key(demo: Server) -> None:
    first = await holdfast("run", "Hello.", "--thread-key", "customer 17", url=demo.base)
    [thread] = re.findall(r"of thread (\S+)", first.err)
    second = await holdfast("run", "And again.", "--thread-key", "customer 17", url=demo.base)
    assert f"of thread {thread}" in second.err
    listed = await holdfast("runs", "--thread-key", "customer 17", "--json", url=demo.base)
    assert {json.loads(line)["thread_id"] for line in listed.out.splitlines()} == {thread}
    both = await holdfast("run", "Hi.", "--thread", thread, "--thread-key", "k", url=demo.base)
    assert (both.code, "can't be combined with --thread" in both.err) == (2, True)


async def test_a_run_without_an_answer_waits_for_decide(demo: Server) -> None:
    left = await holdfast("run", "delete /tmp/x", url=demo.base)
    assert left.code == 6
    [ticket] = re.findall(r"^  holdfast decide approve (\S+)$", left.err, re.MULTILINE)
    decided = await holdfast("decide", "reject", ticket, "--reason", "no", url=demo.base)
    assert decided.code == 0
    assert decided.out == f'{ticket}: reject accepted (delete_file {{"path":"/tmp/x"}})\n'
    again = await holdfast("decide", "approve", ticket, url=demo.base)
    assert again.code == 7
    assert "ticket_already_decided" in again.err
    assert len(again.err.splitlines()) == 1


async def test_a_late_answer_is_reported_and_the_run_continues(demo: Server) -> None:
    async with (
        started("run", "delete /tmp/x", HOLDFAST_URL=demo.base) as run,
        demo.client() as client,
    ):
        await run.printed(re.compile("quit > $"))
        [run_id] = re.findall(r"run (\S+) of thread", run.log)
        await client.decide(await client.run(run_id), "reject", reason="rejected by another client")
        run.type("approve")
        assert await run.gone() == 0
    assert "ticket_already_decided" in run.log
    assert "Denied: rejected by another client" in run.log


async def test_decide_edits_and_responds(demo: Server) -> None:
    for action, option, value, expected in [
        ("edit", "--arguments", '{"path": "/tmp/other"}', "Deleted /tmp/other"),
        ("respond", "--result", '"by hand"', "by hand"),
    ]:
        async with demo.client() as client:
            started_ = await client.start("demo", "delete /tmp/x")
            run_id = started_["id"]
            [ticket] = (await client.settled(run_id))["waiting"]["tickets"]
            done = await holdfast("decide", action, ticket["id"], option, value, url=demo.base)
            assert done.code == 0, done.err
            assert expected in (await client.settled(run_id))["final_output"]
    wrong = await holdfast("decide", "edit", ticket["id"], "--arguments", "{", url=demo.base)
    assert wrong.code == 2
    assert "isn't valid JSON" in wrong.err


async def test_tail_prints_every_event_of_a_run(demo: Server) -> None:
    async with demo.client() as client:
        run = await client.start("demo", "Hello.")
        await client.settled(run["id"])
        page = await client.get(f"/v1/runs/{run['id']}/events", limit=500)
    log = [untimed(event) for event in page["items"]]
    exact = await holdfast("tail", run["id"], "--json", url=demo.base)
    assert [json.loads(line) for line in exact.out.splitlines()] == log
    readable = await holdfast("tail", run["id"], url=demo.base)
    assert re.match(r"\d\d:\d\d:\d\d run_created +agent_id=demo", readable.out)
    assert f"\n{text_of(log)}\n" in readable.out
    assert re.search(r"^\S+ run_finish +natural_end$", readable.out, re.M)
    assert "\x1b" not in readable.out


async def test_tail_follows_a_waiting_run_until_its_end(demo: Server) -> None:
    async with demo.client() as client:
        run = await client.start("demo", "delete /tmp/x")
        waiting = await client.settled(run["id"])
        async with started("tail", run["id"], HOLDFAST_URL=demo.base) as tail:
            await tail.printed(re.compile(r"run_finish.*suspended"))
            await client.decide(waiting, "approve")
            await tail.printed(re.compile(r"run_finish.*natural_end"))
            assert await tail.gone() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["CALL add {} CALL add {}", "--agent", "limited"], 3, "budget_exceeded (1 rounds"),
        (["Hello.", "--agent", "broken"], 1, "The run is done: failed"),
        (["Hello.", "--agent", "nobody"], 7, "agent_not_found"),
        (["Hello.", "--url", UNUSED_ADDRESS], 7, f"No server answers at {UNUSED_ADDRESS}"),
        (["Hello.", "--url", "nonsense"], 7, "No server answers at nonsense"),
        (["Hello.", "--key", "schlüssel"], 7, "isn't valid"),
    ],
)
async def test_the_exit_code_shows_how_the_run_ended(
    demo: Server, arguments: list[str], code: int, sentence: str
) -> None:
    done = await holdfast("run", *arguments, url=demo.base)
    assert done.code == code, done.err
    assert sentence in done.err
    assert "Traceback" not in done.err


async def test_an_unknown_run_is_refused_in_one_line(demo: Server) -> None:
    for command in (["tail", "x"], ["decide", "approve", "x"], ["explain", "x"], ["retry", "x"]):
        refused = await holdfast(*command, url=demo.base)
        assert refused.code == 7
        assert len(refused.err.splitlines()) == 1


# --- waits that end without a person -------------------------------------------------------------


async def test_an_executing_delegate_needs_no_decision(demo: Server) -> None:
    prompt = f"CALL agent_run_slow {json.dumps({'prompt': 'one two three'})}"
    done = await holdfast("run", prompt, "--agent", "boss", url=demo.base)
    assert done.code == 0, done.err
    assert "You said: one two three" in done.out
    assert "[waits for the agents that it called]" in done.err
    assert " > " not in done.err


async def test_the_ticket_of_a_child_is_decided_in_the_terminal(demo: Server) -> None:
    prompt = f"CALL agent_run_demo {json.dumps({'prompt': 'delete /tmp/x'})}"
    done = await holdfast("run", prompt, "--agent", "boss", url=demo.base, stdin="approve\n")
    assert done.code == 0, done.err
    assert "Agent demo asks:" in done.err
    assert '    path = "/tmp/x"\napprove / edit' in done.err
    assert "Deleted /tmp/x" in done.out
    left = await holdfast("run", prompt, "--agent", "boss", url=demo.base)
    assert left.code == 6
    [ticket] = re.findall(r"^  holdfast decide approve (\S+)$", left.err, re.MULTILINE)
    decided = await holdfast("decide", "approve", ticket, url=demo.base)
    assert decided.code == 0, decided.err


async def test_the_command_exits_with_the_code_of_a_wait_for_a_paused_run(demo: Server) -> None:
    prompt = 'CALL receive {"key": "A-8"}'
    async with (
        started("run", prompt, "--agent", "boss", HOLDFAST_URL=demo.base) as run,
        demo.client() as client,
    ):
        await run.printed(re.compile("waits for an event"))
        [run_id] = re.findall(r"run (\S+) of thread", run.log)
        await client.post(f"/v1/runs/{run_id}/pause", {"reason": "lunch"})
        assert await run.gone() == 6
    assert "has paused the run: lunch" in run.log
    assert f"Resume it with: holdfast resume {run_id}" in run.log


# --- signals and cuts -----------------------------------------------------------------------------


async def test_text_is_streamed_and_ctrl_c_cancels_the_run(demo: Server) -> None:
    async with started("run", LONG, "--agent", "slow", HOLDFAST_URL=demo.base) as run:
        await run.printed(re.compile("word word"))
        run.interrupt()
        await run.printed(re.compile("Cancelling the run"))
        assert await run.gone() == 5
    assert "cancelled" in run.log
    assert "Traceback" not in run.log
    assert run.log.count("word") < 400
    await _is_cancelled(demo, run.log)


async def test_ctrl_c_at_a_question_cancels_the_run(demo: Server) -> None:
    async with started("run", "delete /tmp/x", HOLDFAST_URL=demo.base) as run:
        await run.printed(re.compile("quit > $"))
        run.interrupt()
        assert await run.gone() == 5
    await _is_cancelled(demo, run.log)


async def test_a_second_ctrl_c_exits_without_waiting_for_the_cancel(demo: Server) -> None:
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


async def test_a_cut_stream_resumes_after_its_last_event(database_url: str) -> None:
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
    # The output equals the log: each event once, including the interrupted message.
    shown = re.sub(r"\n?\[[^]\n]*\]\n|^run .*\n", "", run.log, flags=re.M)
    logged = "".join(event["delta"] for event in log if event["event_type"] == "text_delta")
    assert shown.replace("\n", "") == logged.replace("\n", "")


# --- what a server prints -------------------------------------------------------------------------


async def test_the_commands_that_a_server_prints_work(database_url: str) -> None:
    async with serving(database_url) as server:
        await server.printed(re.compile("decide approve .*\n"))
        run, tickets, approve = LINES.findall(server.log)
        address = f"export HOLDFAST_URL={server.base}"
        assert f"  {address}\n" in server.log
        assert "refund" in await _shell(f"{address}; {run} < /dev/null")
        assert "approval" in await _shell(f"{address}; {tickets}")
        assert ": approve accepted (refund" in await _shell(f"{address}; {approve}")
        assert "demo (plays a script)" in server.log


async def test_a_server_with_keys_says_that_the_commands_need_one(
    database_url: str, tmp_path: Path
) -> None:
    made = await holdfast("keys", "new", "--subject", "me", "--scope", "admin")
    key = made.err.splitlines()[0].rpartition(" ")[2]
    file = tmp_path / "keys.toml"
    file.write_text(made.out)
    async with serving(database_url, api_keys_file=file) as server:
        await server.printed(re.compile("  export HOLDFAST_API_KEY=…   # your key\n"))
        refused = await holdfast("run", "Hello.", url=server.base)
        assert refused.code == 7
        assert "unauthenticated" in refused.err
        known = await holdfast("run", "Hello.", url=server.base, HOLDFAST_API_KEY=key)
        assert known.code == 0, known.err


async def _shell(line: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return out.decode()
