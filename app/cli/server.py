"""A server as the commands see it: requests that explain their refusals, streams that come back."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx2

from app.cli.endings import ExitCode, give_up

_PATIENCE = httpx2.Timeout(30.0)
_MOST_RETRIES = 30
_EVENT_STREAM = {"Accept": "text/event-stream"}


class Server:
    def __init__(self, url: str, key: str | None) -> None:
        self.url = url.rstrip("/")
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.http = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=_PATIENCE)

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def post(self, path: str, body: Any) -> dict[str, Any]:
        try:
            return _answer(await self.http.post(path, json=body))
        except httpx2.TransportError as error:
            give_up(self._unreachable(error))

    async def get(self, path: str) -> dict[str, Any]:
        try:
            return _answer(await self.http.get(path))
        except httpx2.TransportError as error:
            give_up(self._unreachable(error))

    async def events(
        self, run_id: str, after: int = 0, *, until_done: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """A run's events until its stream ends; a connection that breaks is taken up again."""
        failures = 0
        while True:
            try:
                async with self.http.stream(
                    "GET",
                    f"/v1/runs/{run_id}/events",
                    params={"follow": int(until_done)},
                    headers={**_EVENT_STREAM, "Last-Event-ID": str(after)},
                ) as response:
                    if response.status_code == 204:
                        return
                    if response.status_code != 200:
                        await response.aread()
                        _answer(response)
                    failures = 0
                    async with aclosing(_parsed(response)) as events:
                        async for event in events:
                            after = event.get("seq", after)
                            yield event
                    return
            except httpx2.TransportError as error:
                failures += 1
                if failures > _MOST_RETRIES:
                    give_up(self._unreachable(error))
                await _breathe(min(0.1 * failures, 2.0))

    def _unreachable(self, error: Exception) -> str:
        return (
            f"No server answers at {self.url} ({type(error).__name__}). Start one with `make run`, or "
            "set HOLDFAST_URL."
        )


def parse_json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        give_up(f"{option} isn't valid JSON: {error}", ExitCode.REFUSED)


async def _parsed(response: httpx2.Response) -> AsyncGenerator[dict[str, Any]]:
    async for sse in httpx2.EventSource(response):
        if sse.data:
            event: dict[str, Any] = json.loads(sse.data)
            yield event


async def _breathe(seconds: float) -> None:
    """Nothing tells a client when a server is back."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        return


def _answer(response: httpx2.Response) -> dict[str, Any]:
    """The body, or the refusal's own sentence."""
    try:
        body: dict[str, Any] = response.json()
    except ValueError:
        give_up(f"{response.url} answered {response.status_code}, and not in JSON.")
    if response.is_error:
        give_up(
            f"{body.get('detail', response.status_code)} ({body.get('code', response.status_code)})",
            ExitCode.REFUSED,
        )
    return body
