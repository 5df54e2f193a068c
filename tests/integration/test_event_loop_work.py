"""What takes long is done in threads, because runs execute on the event loop."""

import asyncio
import gc
import threading
from collections.abc import Iterator

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import REGISTRY, Metric

from app import telemetry
from app.api.health import metrics
from app.bootstrap.application import Application
from app.cli.server import serving
from app.cli.server.event_loop import StopSignal
from app.http.auth import Authenticator
from app.http.openapi import OpenAPIDocument
from app.main import create_app
from app.settings import Settings

pytestmark = pytest.mark.anyio


class _Built(Exception):
    """Ends the server as soon as its routes are built."""


@pytest.fixture
def collected_again() -> Iterator[None]:
    """A server freezes the objects of its start. This makes the collector as it was."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def test_a_server_builds_its_routes_in_a_thread(
    database_url: str,
    collected_again: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built_in: list[threading.Thread] = []

    def built(application: Application, authenticator: Authenticator) -> FastAPI:
        create_app(application, authenticator)
        built_in.append(threading.current_thread())
        raise _Built

    monkeypatch.setattr(serving, "create_app", built)
    settings = Settings(database_url=database_url, port=0, log_level="error")
    this_task = asyncio.current_task()
    assert this_task is not None
    with pytest.RaisesGroup(_Built, allow_unwrapped=True, flatten_subgroups=True):
        await serving.serve(settings, StopSignal(this_task))
    [thread] = built_in
    assert thread is not threading.current_thread()


async def test_the_first_request_builds_the_description_of_the_api_in_a_thread() -> None:
    built_in: list[threading.Thread] = []

    def build() -> dict[str, str]:
        built_in.append(threading.current_thread())
        return {"openapi": "3.1.0"}

    app = FastAPI(openapi_url=None)
    app.add_route("/openapi.json", OpenAPIDocument(build).respond)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://test"
    ) as client:
        answers = [await client.get("/openapi.json") for _ in range(2)]
    assert [answer.json() for answer in answers] == [{"openapi": "3.1.0"}] * 2
    [thread] = built_in
    assert thread is not threading.current_thread()


class _Recorder:
    """A metric whose values are read in a thread that it remembers."""

    def __init__(self) -> None:
        self.read_in: list[threading.Thread] = []

    def collect(self) -> Iterator[Metric]:
        self.read_in.append(threading.current_thread())
        yield Metric("test_of_threads", "Of this test.", "gauge")


async def test_metrics_are_collected_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(telemetry.SHARED_METRICS_VARIABLE, raising=False)
    recorder = _Recorder()
    REGISTRY.register(recorder)
    try:
        recorder.read_in.clear()
        response = await metrics()
    finally:
        REGISTRY.unregister(recorder)
    assert b"test_of_threads" in bytes(response.body)
    [thread] = recorder.read_in
    assert thread is not threading.current_thread()
