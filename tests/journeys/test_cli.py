"""The command line as a person uses it: real processes, piped answers, exit codes."""

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.commands import holdfast
from tests.support.servers import Server, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def demo(database_url: str) -> AsyncIterator[Server]:
    async with serving(database_url) as server:
        yield server


async def test_a_run_asks_shows_the_call_and_goes_on(demo: Server) -> None:
    done = await holdfast("run", "delete /tmp/x", url=demo.base, stdin="approve\n")
    assert done.code == 0, done.err
    assert 'delete_file {"path": "/tmp/x"}' in done.err
    assert "Deleted /tmp/x" in done.out


async def test_an_edited_call_runs_with_the_new_arguments(demo: Server) -> None:
    answers = 'edit\n{"path": "/tmp/other"}\n'
    done = await holdfast("run", "delete /tmp/x", url=demo.base, stdin=answers)
    assert done.code == 0, done.err
    assert "Deleted /tmp/other" in done.out


async def test_quitting_leaves_the_run_waiting_for_decide(demo: Server) -> None:
    left = await holdfast("run", "delete /tmp/x", url=demo.base, stdin="quit\n")
    assert left.code == 6
    async with demo.client() as client:
        [ticket] = (await client.get("/v1/tickets", status="open"))["items"]
    decided = await holdfast(
        "decide", ticket["run_id"], ticket["ticket_id"], "reject", "--reason", "no", url=demo.base
    )
    assert decided.code == 0, decided.err
    assert "accepted" in decided.out
    tailed = await holdfast("tail", ticket["run_id"], "--json", url=demo.base)
    events = [json.loads(line) for line in tailed.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["termination"] == {"type": "natural_end"}
    again = await holdfast("decide", ticket["run_id"], ticket["id"], "approve", url=demo.base)
    assert again.code == 7
    assert "ticket_already_decided" in again.err


async def test_the_doctor_finds_nothing_wrong_with_a_running_server(
    demo: Server, database_url: str
) -> None:
    found = await holdfast("doctor", url=demo.base, DATABASE_URL=database_url)
    assert found.code == 0, found.out
    assert "problem" not in found.out


async def test_the_doctor_names_what_is_wrong() -> None:
    found = await holdfast(
        "doctor",
        url="http://127.0.0.1:9",
        DATABASE_URL="postgresql://nobody@127.0.0.1:9/none",
        HOLDFAST_AGENTS="/nowhere/agents.toml",
        HOLDFAST_PROT="1",
    )
    assert found.code == 1
    assert "did you mean HOLDFAST_PORT?" in found.out
    assert "Can't reach Postgres" in found.out
    assert "/nowhere/agents.toml" in found.out


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"HOLDFAST_HOST": "0.0.0.0"}, "Without API keys"),
        ({"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}, "Can't reach Postgres"),
        ({"DATABASE_URL": "mysql://somewhere/else"}, "must be a Postgres URL"),
        ({"HOLDFAST_PORT": "seventy"}, "HOLDFAST_PORT"),
        ({"HOLDFAST_AGENTS": "/nowhere/agents.toml"}, "/nowhere/agents.toml"),
    ],
)
async def test_a_start_that_can_not_work_says_why_in_a_sentence(
    database_url: str, settings: dict[str, str], sentence: str
) -> None:
    environment = {"DATABASE_URL": database_url, "HOLDFAST_PORT": "0", **settings}
    failed = await holdfast("serve", **environment)
    assert failed.code == 1
    assert sentence in failed.err
    assert "Traceback" not in failed.err


async def test_a_database_that_is_not_migrated_is_refused(postgres_url: str) -> None:
    failed = await holdfast("serve", DATABASE_URL=postgres_url, HOLDFAST_PORT="0")
    assert failed.code == 1
    assert "holdfast migrate" in failed.err
    migrated = await holdfast("migrate", DATABASE_URL=postgres_url)
    assert migrated.code == 0, migrated.err


async def test_a_port_that_is_taken_is_named(demo: Server, database_url: str) -> None:
    port = demo.base.rpartition(":")[2]
    failed = await holdfast("serve", DATABASE_URL=database_url, HOLDFAST_PORT=port)
    assert failed.code == 1
    assert f"Port {port}" in failed.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_quietly_with_a_stream_open(
    database_url: str, number: signal.Signals
) -> None:
    async with serving(database_url) as server, server.client() as client:
        thread = await client.post("/v1/threads", {}, 201)
        async with client.events(f"/v1/threads/{thread['thread_id']}"):
            server.process.send_signal(number)
            assert await server.gone() == 0
    assert "Traceback" not in server.log


async def test_a_new_key_opens_the_door(database_url: str, tmp_path: Path) -> None:
    made = await holdfast("keys", "new", "--subject", "me", "--scope", "admin")
    key = made.err.splitlines()[0].rpartition(" ")[2]
    file = tmp_path / "keys.toml"
    file.write_text(made.out)
    async with serving(database_url, api_keys_file=file) as server:
        known = await holdfast("doctor", url=server.base, HOLDFAST_API_KEY=key)
        assert "your key" not in known.out
        async with server.client(key) as client:
            assert (await client.get("/v1/agents"))["items"]
        refused = await holdfast("run", "hello", url=server.base)
        assert refused.code == 7
        assert "unauthenticated" in refused.err
