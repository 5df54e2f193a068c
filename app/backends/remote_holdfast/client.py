"""Requests to another Holdfast, over one connection pool, with retries while it is unreachable."""

from collections.abc import Mapping
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

IDLE_TIMEOUT_SECONDS = 30.0
"""Seconds without an event or a heartbeat after which a stream counts as broken."""


@dataclass(slots=True)
class HoldfastClient:
    url: str
    retry_seconds: float
    token: str | None = field(repr=False)
    _http: httpx2.AsyncClient | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Send a request, with retries until a response comes. Every request here is safe to repeat."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return await retry_within(
            self.retry_seconds, lambda: self._send_once(method, path, body, headers)
        )

    async def _send_once(
        self, method: str, path: str, body: JsonObject | None, headers: Mapping[str, str]
    ) -> JsonObject:
        try:
            async with self._pool.stream(method, path, json=body, headers=headers) as response:
                answer = await body_of(response)
            if response.is_success:
                with parse_errors_translated():
                    return parse_answer(answer)
        except httpx2.TransportError as error:
            raise unreachable_failure(error) from error
        raise parse_refusal(response.status_code, answer)

    def events(self, run_id: str, after: int) -> AbstractAsyncContextManager[httpx2.Response]:
        """Read the run's stream over one connection, from the event after the last known one."""
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
                timeout=httpx2.Timeout(IDLE_TIMEOUT_SECONDS, pool=None),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
            )
        return self._http
