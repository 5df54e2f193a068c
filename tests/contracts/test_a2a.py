"""A2A where it is rough: agents that are late, die, won't stop, or lead elsewhere."""

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
from tests.support.house import Replica, Run, of_type, replica
from tests.support.remotes import A2ARemote, A2AServer, Remotes

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def house(url: str, there: A2ARemote) -> AsyncIterator[Replica]:
    async with replica(url, there.catalog, there.script, backends=there.backends) as opened:
        yield opened
    await there.backends.aclose()


async def hanging(here: Replica, server: A2AServer) -> Run:
    """A run whose agent has begun to speak, and says no more until it is let go."""
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
    async with house(database_url, A2ARemote(server, {})) as here:
        run = await here.start("make a draft")
        said = await run.finished()
        kept = ((await run.now()).run_state or {})["extensions"][OUTPUT_KEY]["artifacts"]
        assert kept == said[-1]["result"]["output"]["artifacts"]
        assert [(each["name"], each["media_type"], each["content"]) for each in kept] == [
            ("draft", "text/plain", "a draft"),
            ("facts", "application/json", {"n": 1.0}),
            ("dot.png", "image/png", "iVBORw=="),
        ]


async def test_text_is_heard_piece_by_piece(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    async with house(database_url, A2ARemote(server, {})) as here:
        run = await here.start("hang")
        await server.seen(hanging=True)
        heard = await run.until("text_delta")
        assert of_type(heard, "text_delta")[0]["delta"] == "still "
        await server.release()
        await run.finished()


async def test_one_that_is_rejected_has_failed(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    async with house(database_url, A2ARemote(server, {})) as here:
        run = await here.start("refuse not my job")
        await run.finished()
        assert await _end_of(run) == Failed("remote_failed", "not my job")


async def test_one_that_is_late_has_timed_out(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    async with house(database_url, A2ARemote(server, {}, timeout=0.5)) as here:
        run = await here.start("hang")
        said = await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Stopped)
        assert end.code == "timeout"
        assert said[-1]["result"]["status"] == "timeout"
        await eventually(lambda: was_told_to_stop(server))


async def test_one_that_wont_stop_doesnt_keep_the_run(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    async with house(database_url, A2ARemote(server, {})) as here:
        run = await here.start("stubborn")
        await server.seen(hanging=True)
        await run.cancel("enough")
        await run.finished()
        assert await _end_of(run) == Cancelled("enough")
        await eventually(lambda: was_told_to_stop(server))


async def test_one_that_dies_ends_the_run_once_it_stays_away(
    database_url: str, remotes: Remotes
) -> None:
    server = await remotes.a2a()
    async with house(database_url, A2ARemote(server, {"retry_seconds": 0.5})) as here:
        run = await hanging(here, server)
        await server.kill()
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_unreachable"


async def test_one_that_falls_silent_is_out_of_reach(
    database_url: str, remotes: Remotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SILENCE_TIMEOUT_SECONDS", 0.3)
    server = await remotes.a2a()
    async with house(database_url, A2ARemote(server, {"retry_seconds": 0.5})) as here:
        run = await hanging(here, server)
        with server.frozen():
            await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_unreachable"


async def test_one_that_thinks_for_long_is_asked_and_heard_to_its_end(
    database_url: str, remotes: Remotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SILENCE_TIMEOUT_SECONDS", 0.2)
    server = await remotes.a2a()
    async with house(database_url, A2ARemote(server, {})) as here:
        run = await hanging(here, server)
        with server.frozen():
            await sleep(0.6)
        await sleep(0.6)
        await server.release()
        said = await run.finished()
        assert await _end_of(run) == NaturalEnd()
        assert said[-1]["result"]["response"] == "still here"


async def test_one_that_has_lost_the_task_says_so(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    async with house(database_url, A2ARemote(server, {})) as here:
        run = await hanging(here, server)
        await server.kill()
        await server.start()
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_task_lost"


async def test_who_isnt_there_is_out_of_reach(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a()
    await server.kill()
    async with house(database_url, A2ARemote(server, {"retry_seconds": 0.2})) as here:
        run = await here.start("say hello")
        await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert end.code == "remote_unreachable"


async def test_the_token_comes_from_the_environment(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a("--token=hunter2")
    with_key = A2ARemote(server, {}, auth_env="FAR_TOKEN", environment={"FAR_TOKEN": "hunter2"})
    async with house(database_url, with_key) as here:
        run = await here.start("say hello")
        said = await run.finished()
        assert said[-1]["result"]["response"] == "hello "


async def test_a_wrong_token_isnt_told_to_anybody(
    database_url: str, remotes: Remotes, capfd: pytest.CaptureFixture[str]
) -> None:
    server = await remotes.a2a("--token=hunter2")
    wrong = A2ARemote(server, {}, auth_env="FAR_TOKEN", environment={"FAR_TOKEN": "s3cret"})
    async with house(database_url, wrong) as here:
        run = await here.start("say hello")
        said = await run.finished()
        end = await _end_of(run)
        assert isinstance(end, Failed)
        assert "401" in end.detail
        assert "s3cret" not in f"{said}{capfd.readouterr()}"


async def test_an_agent_without_its_token_waits_until_there_is_one(
    database_url: str, remotes: Remotes
) -> None:
    server = await remotes.a2a("--token=hunter2")
    without = A2ARemote(server, {}, auth_env="FAR_TOKEN", environment={})
    async with house(database_url, without) as here:
        run = await here.start("say hello")
        said = await run.finished()
        assert "FAR_TOKEN isn't set" in said[-1]["waiting"]["message"]


async def test_a_card_cant_lead_the_token_away(database_url: str, remotes: Remotes) -> None:
    server = await remotes.a2a("--elsewhere=http://elsewhere.test")
    async with house(database_url, A2ARemote(server, {})) as here:
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


async def was_told_to_stop(server: A2AServer) -> bool:
    return len((await server.seen())["cancels"]) == 1
