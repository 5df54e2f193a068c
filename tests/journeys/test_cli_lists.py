"""Commands that list and inspect: tables for people, JSON for programs, and exit codes, without a terminal."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Finished, holdfast
from tests.support.databases import Databases
from tests.support.servers import Server, serving

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "terminal" / "agents.toml"


@pytest.fixture(scope="module")
async def server(postgres: Databases) -> AsyncIterator[Server]:
    async with postgres.fresh() as url, serving(url, agents=AGENTS) as server:
        yield server


@pytest.fixture
async def fresh(database_url: str) -> AsyncIterator[Server]:
    """A server without runs."""
    async with serving(database_url, agents=AGENTS) as server:
        yield server


def objects(done: Finished) -> list[Any]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def table(done: Finished) -> list[list[str]]:
    """The cells of a table, which two spaces or more separate."""
    assert done.code == 0, done.err
    heading, *rows = done.out.splitlines()
    starts = [heading.index(word) for word in heading.split()]
    ends = [*starts[1:], None]
    return [[row[a:b].strip() for a, b in zip(starts, ends, strict=True)] for row in rows]


async def start(server: Server, agent: str, prompt: str, **more: Any) -> dict[str, Any]:
    async with server.client() as client:
        run = await client.start(agent, prompt, **more)
        return await client.settled(run["id"])


async def test_runs_are_listed_newest_first_with_how_they_are(fresh: Server) -> None:
    done = await start(fresh, "demo", "Hello.\nTwo lines.")
    waiting = await start(fresh, "demo", "delete /tmp/x")
    rows = table(await holdfast("runs", url=fresh.base))
    assert [row[:3] for row in rows] == [
        [waiting["id"], "demo", "waiting: tool_permission"],
        [done["id"], "demo", "succeeded"],
    ]
    assert rows[0][3] == waiting["created_at"][:19].replace("T", " ")
    assert rows[1][4] == done["final_output"].replace("\n", " ")[:60] + "…"


async def test_runs_are_filtered_as_the_api_does(fresh: Server) -> None:
    done = await start(fresh, "demo", "Hello.", metadata={"team": "red"})
    waiting = await start(fresh, "demo", "delete /tmp/x")
    for options, expected in [
        (["--status", "waiting"], [waiting]),
        (["--outcome", "succeeded"], [done]),
        (["--waiting-reason", "tool_permission"], [waiting]),
        (["--waiting-reason", "manual_pause"], []),
        (["--not-paused", "--order", "asc"], [done, waiting]),
        (["--paused"], []),
        (["--agent", "slow"], []),
        (["--thread", done["thread_id"]], [done]),
        (["--root", waiting["id"]], [waiting]),
        (["--parent", waiting["id"]], []),
        (["--created-after", "2100-01-01T00:00:00Z"], []),
        (["--created-before", waiting["created_at"]], [done]),
        (["--metadata", "team=red"], [done]),
    ]:
        listed = objects(await holdfast("runs", *options, "--json", url=fresh.base))
        assert [run["id"] for run in listed] == [run["id"] for run in expected], options


async def test_threads_are_listed_and_filtered(fresh: Server) -> None:
    first = await start(fresh, "demo", "Hello.", thread_key="customer-17")
    second = await start(fresh, "demo", "Hello.")
    rows = table(await holdfast("threads", url=fresh.base))
    assert [row[0] for row in rows] == [second["thread_id"], first["thread_id"]]
    assert rows[1][1:3] == ["customer-17", "2"]
    for options, expected in [
        (["--thread-key", "customer-17"], [first]),
        (["--parent", first["thread_id"], "--resource", "house-7"], []),
        (["--created-before", second["created_at"], "--order", "asc"], [first]),
        (["--order", "asc", "--created-after", "2020-01-01T00:00:00Z"], [first, second]),
    ]:
        listed = objects(await holdfast("threads", *options, "--json", url=fresh.base))
        assert [one["id"] for one in listed] == [one["thread_id"] for one in expected]


async def test_a_list_says_that_there_is_more(fresh: Server) -> None:
    for _ in range(3):
        await start(fresh, "demo", "Hello.")
    some = await holdfast("runs", "--limit", "2", url=fresh.base)
    assert len(table(some)) == 2
    assert some.err == "There are more. Show them with --limit 10.\n"
    everything = await holdfast("runs", "--limit", "3", url=fresh.base)
    assert (len(table(everything)), everything.err) == (3, "")


async def test_agents_are_listed_in_the_order_of_the_file(server: Server) -> None:
    rows = table(await holdfast("agents", url=server.base))
    assert rows[0][:3] == ["demo", "demo", "delete_file"]
    assert [row[0] for row in rows] == ["demo", "slow", "limited", "broken", "boss"]
    reverse = table(await holdfast("agents", "--order", "desc", url=server.base))
    assert reverse == rows[::-1]
    listed = objects(await holdfast("agents", "--json", url=server.base))
    async with server.client() as client:
        assert listed == (await client.get("/v1/agents"))["items"]


async def test_processes_and_statistics_are_shown(server: Server) -> None:
    async with server.client() as client:
        await client.ended((await client.start("demo", "hi"))["id"])
    [worker] = table(await holdfast("workers", url=server.base))
    assert "yes" in worker
    printed = await holdfast("stats", "--bucket", "minute", url=server.base)
    assert printed.code == 0
    assert "0 executing" in printed.out
    [found] = objects(await holdfast("stats", "--json", url=server.base))
    assert len(found["statistics"]["buckets"]) == 24


async def test_the_first_agent_of_the_file_is_the_default(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "agents.toml").write_text(
        '[models.m]\nprovider = "scripted"\nscript = "plain"\n'
        '[agents.zoe]\nmodel = "m"\n[agents.adam]\nmodel = "m"\n'
    )
    async with serving(database_url, agents=tmp_path) as server, server.client() as client:
        first = await holdfast("run", "Hello.", url=server.base)
        assert first.code == 0, first.err
        other = await holdfast("run", "Hello.", "--agent", "adam", url=server.base)
        thread = other.err.split()[-1]
        again = await holdfast("run", "Again.", "--thread", thread, url=server.base)
        assert again.code == 0, again.err
        runs = (await client.get("/v1/runs"))["items"]
    assert [run["agent_id"] for run in runs] == ["adam", "adam", "zoe"]


async def test_the_only_open_ticket_is_listed_and_decided_without_its_id(fresh: Server) -> None:
    nothing = await holdfast("decide", "approve", url=fresh.base)
    assert (nothing.code, nothing.err) == (1, "holdfast: No ticket is open.\n")
    run = await start(fresh, "demo", "delete /tmp/x")
    [row] = table(await holdfast("tickets", url=fresh.base))
    [ticket] = objects(await holdfast("tickets", "--json", url=fresh.base))
    assert [row[0], *row[1:3], *row[4:]] == [
        ticket["id"],
        "approval",
        "open",
        "demo",
        "",
        "unsafe",
        "",
        'delete_file {"path":"/tmp/x"}',
    ]
    decided = await holdfast("decide", "approve", url=fresh.base)
    assert decided.out == f'{ticket["id"]}: approve accepted (delete_file {{"path":"/tmp/x"}})\n'
    assert decided.err == f"Follow the run with: holdfast tail {run['id']}\n"
    async with fresh.client() as client:
        assert (await client.ended(run["id"]))["outcome"] == "succeeded"


async def test_of_several_open_tickets_none_is_decided_without_its_id(fresh: Server) -> None:
    runs = [await start(fresh, "demo", f"delete /tmp/{name}") for name in "xy"]
    refused = await holdfast("decide", "approve", url=fresh.base)
    assert refused.code == 1
    assert "name the one that you decide" in refused.err
    assert len(refused.out.splitlines()) == 3
    async with fresh.client() as client:
        assert {(await client.run(run["id"]))["status"] for run in runs} == {"waiting"}


async def test_tickets_are_filtered_as_the_api_does(fresh: Server) -> None:
    first = await start(fresh, "demo", "delete /tmp/x")
    second = await start(fresh, "demo", "delete /tmp/y")
    [ticket] = first["waiting"]["tickets"]
    created = first["created_at"]
    await holdfast("decide", "reject", ticket["id"], url=fresh.base)
    assert (await holdfast("tickets", "--count", url=fresh.base)).out == "1\n"
    counted = await holdfast("tickets", "--count", "--json", "--status", "any", url=fresh.base)
    assert objects(counted) == [{"count": 2, "is_exact": True}]
    for options, expected in [
        ([], [second]),
        (["--status", "decided"], [first]),
        (["--status", "any", "--order", "asc"], [first, second]),
        (["--kind", "input", "--created-after", "2020-01-01T00:00:00Z"], []),
        (["--tool", "delete_file", "--agent", "demo"], [second]),
        (["--tool", "other"], []),
        (["--run", first["id"], "--status", "any"], [first]),
        (["--thread", first["thread_id"], "--status", "any"], [first]),
        (["--mine"], [second]),
        (["--expires-before", "2026-01-31T08:00:00Z"], []),
        (["--root", first["id"], "--status", "any"], [first]),
        (["--sort", "expires_at", "--status", "any", "--created-after", created], [first, second]),
    ]:
        listed = objects(await holdfast("tickets", *options, "--json", url=fresh.base))
        assert [one["run_id"] for one in listed] == [one["id"] for one in expected], options


async def test_explain_says_what_a_run_waits_for_and_which_command_continues_it(
    server: Server,
) -> None:
    run = await start(server, "demo", "delete /tmp/x")
    [ticket] = run["waiting"]["tickets"]
    shown = await holdfast("explain", run["id"], url=server.base)
    assert shown.code == 0, shown.err
    assert shown.out.startswith(f"Run {run['id']} is waiting.\n")
    assert f"  holdfast decide approve {ticket['id']}\n" in shown.out
    [exact] = objects(await holdfast("explain", run["id"], "--json", url=server.base))
    async with server.client() as client:
        assert exact == await client.get(f"/v1/runs/{run['id']}/explain")


async def test_cancel_ends_a_run_and_says_how_it_ended(server: Server) -> None:
    run = await start(server, "demo", "delete /tmp/x")
    for _ in range(2):
        done = await holdfast("cancel", run["id"], "--reason", "mistake", url=server.base)
        assert (done.code, done.out) == (0, f"{run['id']}: cancelled\n")


async def test_a_cancel_that_has_not_settled_has_an_exit_code_of_its_own(server: Server) -> None:
    async with server.client() as client:
        run = await client.start("slow", "word " * 400)
        async with client.events(f"/v1/runs/{run['id']}") as events:
            await events.until("text_delta")
            asked = await holdfast("cancel", run["id"], "--wait", "0", url=server.base)
    assert asked.code == 6, asked.err
    assert asked.out == f"{run['id']}: cancel requested, still running\n"


async def test_a_run_is_paused_and_resumed(server: Server) -> None:
    async with server.client() as client:
        run = await client.start("slow", "word " * 100)
        async with client.events(f"/v1/runs/{run['id']}") as events:
            await events.until("text_delta")
            asked = await holdfast("pause", run["id"], "--wait", "0", url=server.base)
        assert (asked.code, asked.out) == (6, f"{run['id']}: pause requested, still running\n")
        cancelled = await holdfast("cancel", run["id"], url=server.base)
        assert cancelled.code == 0, cancelled.err

    waiting = await start(server, "demo", "delete /tmp/x")
    for _ in range(2):
        paused = await holdfast("pause", waiting["id"], "--reason", "lunch", url=server.base)
        assert (paused.code, paused.out) == (0, f"{waiting['id']}: paused\n")
    async with server.client() as client:
        assert (await client.run(waiting["id"]))["pause"]["reason"] == "lunch"
    for _ in range(2):
        resumed = await holdfast("resume", waiting["id"], url=server.base)
        assert (resumed.code, resumed.out) == (0, f"{waiting['id']}: waiting\n")
    async with server.client() as client:
        assert (await client.run(waiting["id"]))["pause"] is None

    done = await start(server, "demo", "Hello.")
    for command in ("pause", "resume"):
        refused = await holdfast(command, done["id"], url=server.base)
        assert (refused.code, "run_finished" in refused.err) == (7, True), refused.err


async def test_retry_starts_a_run_and_prints_its_id(server: Server) -> None:
    latest = (await start(server, "broken", "Hello."))["id"]
    for options in ([], ["--current"]):
        done = await holdfast("retry", latest, *options, url=server.base)
        assert done.code == 0, done.err
        async with server.client() as client:
            retried = await client.ended(done.out.strip())
        assert retried["retry_of_run_id"] == latest
        latest = retried["id"]


async def test_refusals_of_the_server_are_one_sentence_and_exit_with_7(server: Server) -> None:
    for command in (
        ["runs", "--created-after", "yesterday"],
        ["runs", "--parent", "x"],
        ["tickets", "--kind", "aproval"],
        ["cancel", "x"],
        ["agents", "--url", "http://127.0.0.1:9"],
    ):
        refused = await holdfast(*command, url=server.base)
        assert (refused.code, refused.out) == (7, ""), command
        assert len(refused.err.splitlines()) == 1
        assert refused.err.startswith("holdfast: ")


async def test_wrong_options_exit_with_2(server: Server) -> None:
    for command in (
        ["runs", "--status", "sleeping"],
        ["runs", "--metadata", "team"],
        ["runs", "--parent", "x", "--thread", "y"],
        ["tickets", "--limit", "0"],
        ["decide", "perhaps"],
        ["cancel", "x", "--wait", "61"],
    ):
        assert (await holdfast(*command, url=server.base)).code == 2, command


async def test_help_and_version_are_printed_everywhere() -> None:
    version = await holdfast("--version")
    assert version.code == 0
    assert version.out.startswith("holdfast 0.")
    for words in ([], ["run"], ["serve"], ["runs"], ["decide"], ["keys"], ["keys", "new"]):
        short_, long = await holdfast(*words, "-h"), await holdfast(*words, "--help")
        assert short_.code == 0, short_.err
        assert short_.out == long.out
        assert "Usage: holdfast" in short_.out


async def test_options_of_serve_win_over_the_environment(database_url: str) -> None:
    """Of two settings that don't work, the option's is the one that is read."""
    settings = {"DATABASE_URL": database_url, "HOLDFAST_AGENTS": "/nowhere/in-environment.toml"}
    wrong_file = await holdfast("serve", "--agents", "/nowhere/option.toml", **settings)
    assert "/nowhere/option.toml: can't be read" in wrong_file.err
    wrong_host = await holdfast("serve", "--host", "0.0.0.0", HOLDFAST_HOST="127.0.0.1")
    assert "every client that reaches 0.0.0.0" in wrong_host.err
    async with serving(database_url) as server:
        taken = await holdfast("serve", "--port", str(server.port), HOLDFAST_PORT="0")
        assert f"Port {server.port} of 127.0.0.1 is in use" in taken.err
