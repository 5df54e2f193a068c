"""A2A agents that are slow, die, ignore a cancel, or name a foreign URL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.backends.a2a import client
from app.backends.a2a.factory import A2AFactory
from app.clock import sleep
from app.domain.agents.backend_results import OUTPUT_KEY
from app.domain.agents.endpoints import Endpoint
from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled, Failed, NaturalEnd, Stopped, Termination
from tests.support.conditions import eventually
from tests.support.remotes import A2ARemote, A2AServer, Remotes
from tests.support.replicas import Replica, Run, of_type, open_replica

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def replica(url: str, there: A2ARemote) -> AsyncIterator[Replica]:
    async with open_replica(url, there.catalog, there.script, backends=there.backends) as opened:
        yield opened
    await there.backends.aclose()


async def hanging(here: Replica, server: A2AServer) -> Run:
    """A run whose agent has streamed some text and waits for its release."""
    run = await here.start("hang")
    await server.seen(hanging=True)
    await run.until("text_delta")
    return run


async def _end_of(run: Run) -> Termination:
    state = (await run.now()).state
    assert isinstance(state, Done)
    return state.termination


async def test_artifacts_of_every_kind_are_kept(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {})) as here:
        run = await here.start("make a draft")
        emitted = await run.finished()
        stored = ((await run.now()).run_state or {})["extensions"][OUTPUT_KEY]["artifacts"]
        assert stored == emitted[-1]["result"]["output"]["artifacts"]
        assert [(each["name"], each["media_type"], each["content"]) for each in stored] == [
            ("draft", "text/plain", "a draft"),
            ("facts", "application/json", {"n": 1.0}),
            ("dot.png", "image/png", "iVBORw=="),
        ]


async def test_text_is_streamed_piece_by_piece(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {})) as here:
        run = await here.start("hang")
        await server.seen(hanging=True)
        received = await run.until("text_delta")
        assert of_type(received, "text_delta")[0]["delta"] == "still "
        await server.release()
        await run.finished()


async def test_a_rejected_task_fails_the_run(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {})) as here:
        run = await here.start("refuse not my job")
        await run.finished()
        assert await _end_of(run) == Failed("remote_failed", "not my job")


async def test_an_agent_past_its_timeout_stops_the_run_and_is_cancelled(
    database_url: str, remotes: Remotes
) -> None:
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {}, timeout=0.5)) as here:
        run = await here.start("hang")
        emitted = await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Stopped)
        assert end.code == "timeout"
        assert emitted[-1]["outcome"] == "budget_exceeded"
        await eventually(lambda: was_cancelled(server))


async def test_an_agent_that_ignores_its_cancel_does_not_hold_the_run(
    database_url: str, remotes: Remotes
) -> None:
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {})) as here:
        run = await here.start("stubborn")
        await server.seen(hanging=True)
        await run.cancel("enough")
        await run.finished()
        assert await _end_of(run) == Cancelled("enough")
        await eventually(lambda: was_cancelled(server))


async def test_an_agent_that_dies_and_stays_away_fails_the_run(
    database_url: str, remotes: Remotes
) -> None:
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {"retry_seconds": 0.5})) as here:
        run = await hanging(here, server)
        await server.kill()
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_unreachable"


async def test_an_agent_that_stops_responding_is_unreachable(
    database_url: str, remotes: Remotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "IDLE_TIMEOUT_SECONDS", 0.3)
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {"retry_seconds": 0.5})) as here:
        run = await hanging(here, server)
        with server.frozen():
            await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_unreachable"


async def test_a_slow_agent_is_polled_until_it_finishes(
    database_url: str, remotes: Remotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "IDLE_TIMEOUT_SECONDS", 0.2)
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {})) as here:
        run = await hanging(here, server)
        with server.frozen():
            await sleep(0.6)
        await sleep(0.6)
        await server.release()
        emitted = await run.finished()
        assert await _end_of(run) == NaturalEnd()
        assert emitted[-1]["result"]["response"] == "still here"


async def test_an_agent_that_lost_its_task_fails_the_run(
    database_url: str, remotes: Remotes
) -> None:
    server = await remotes.a2a()
    async with replica(database_url, A2ARemote(server, {})) as here:
        run = await hanging(here, server)
        await server.kill()
        await server.start()
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_task_lost"


async def test_an_agent_that_does_not_run_is_unreachable(
    database_url: str, remotes: Remotes
) -> None:
    server = await remotes.a2a()
    await server.kill()
    async with replica(database_url, A2ARemote(server, {"retry_seconds": 0.2})) as here:
        run = await here.start("say hello")
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_unreachable"


async def test_the_token_comes_from_the_environment(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a("--token=hunter2")
    with_key = A2ARemote(server, {}, auth_env="FAR_TOKEN", environment={"FAR_TOKEN": "hunter2"})
    async with replica(database_url, with_key) as here:
        run = await here.start("say hello")
        emitted = await run.finished()
        assert emitted[-1]["result"]["response"] == "hello "


async def test_a_rejected_token_is_in_no_event_and_no_log(
    database_url: str, remotes: Remotes, capfd: pytest.CaptureFixture[str]
) -> None:
    server = await remotes.a2a("--token=hunter2")
    wrong = A2ARemote(server, {}, auth_env="FAR_TOKEN", environment={"FAR_TOKEN": "s3cret"})
    async with replica(database_url, wrong) as here:
        run = await here.start("say hello")
        emitted = await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert "401" in end.detail
        assert "s3cret" not in f"{emitted}{capfd.readouterr()}"


async def test_a_run_waits_while_the_variable_of_its_token_is_not_set(
    database_url: str, remotes: Remotes
) -> None:
    server = await remotes.a2a("--token=hunter2")
    without = A2ARemote(server, {}, auth_env="FAR_TOKEN", environment={})
    async with replica(database_url, without) as here:
        run = await here.start("say hello")
        emitted = await run.finished()
        assert "FAR_TOKEN isn't set" in emitted[-1]["waiting"]["detail"]


async def test_a_card_with_a_foreign_url_is_refused(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a("--elsewhere=http://elsewhere.test")
    async with replica(database_url, A2ARemote(server, {})) as here:
        run = await here.start("say hello")
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_card_foreign"


@pytest.mark.parametrize(
    "options, key",
    [({"poll_interval": 0}, "options.poll_interval"), ({"polling": True}, "options.polling")],
)
def test_a_wrong_option_is_named(options: dict[str, object], key: str) -> None:
    endpoint = Endpoint(backend="a2a", url="http://far.test", options=options)
    [(at, sentence)] = A2AFactory().option_errors(endpoint)
    assert at == key
    assert sentence.endswith("correct or remove it")


async def was_cancelled(server: A2AServer) -> bool:
    return len((await server.seen())["cancels"]) == 1
