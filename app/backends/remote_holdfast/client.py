"""Requests to another Holdfast: over one pool of connections, and with patience while it is out of reach."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import httpx2

from app.backends.remote_holdfast.responses import (
    body_of,
    parse_answer,
    parse_errors_translated,
    parse_refusal,
    unreachable_failure,
)
from app.backends.retrying import retry_within
from app.domain.json_values import JsonObject

SILENCE_TIMEOUT_SECONDS = 30.0
"""Seconds without as much as a heartbeat after which a stream counts as dead."""


@dataclass(slots=True)
class HoldfastClient:
    url: str
    retry_seconds: float
    token: str | None = field(repr=False)
    _http: httpx2.AsyncClient | None = None

    async def request(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """Ask until there is an answer: nothing that is asked here does harm when it is asked twice."""
        return await retry_within(self.retry_seconds, lambda: self._ask_once(method, path, body))

    async def _ask_once(self, method: str, path: str, body: JsonObject | None) -> JsonObject:
        try:
            async with self._pool.stream(method, path, json=body) as response:
                answer = await body_of(response)
            if response.is_success:
                with parse_errors_translated():
                    return parse_answer(answer)
        except httpx2.TransportError as error:
            raise unreachable_failure(error) from error
        raise parse_refusal(response.status_code, answer)

    def events(self, run_id: str, after: int) -> AbstractAsyncContextManager[httpx2.Response]:
        """One connection to the stream of a run, from its next event on."""
        headers = {"Accept": "text/event-stream"}
        if after:
            headers["Last-Event-ID"] = str(after)
        return self._pool.stream("GET", f"/v1/runs/{run_id}/events", headers=headers)

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    @property
    def _pool(self) -> httpx2.AsyncClient:
        if self._http is None:
            headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
            self._http = httpx2.AsyncClient(
                base_url=self.url,
                headers=headers,
                timeout=httpx2.Timeout(SILENCE_TIMEOUT_SECONDS, pool=None),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
            )
        return self._http
