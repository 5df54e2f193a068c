"""A server as the commands see it: requests that explain their refusals, streams that come back."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import httpx2

from app.cli.exit_codes import ExitCode, exit_with
from app.domain.errors import HoldfastError

Body: TypeAlias = dict[str, Any]
Event: TypeAlias = dict[str, Any]

_TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
_SILENCE = httpx2.Timeout(60.0, connect=10.0)
"""On a stream: the server breaks every silence much earlier."""
_PATIENCE = 60.0
_LONGEST_PAUSE = 2.0
_PASSING = frozenset({429, 502, 503, 504})
_NO_PROXY = {f"all://{host}": None for host in ("127.0.0.1", "localhost", "[::1]")}


class ServerUnreachable(HoldfastError):
    """Nobody answers, or no longer."""


class ServerRefused(HoldfastError):
    """The server's answer is "no"; its own sentence says why."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.status = status
        self.code = code


class ApiClient:
    def __init__(self, url: str, http: httpx2.Client) -> None:
        self._url = url
        self._http = http

    def get(self, path: str) -> Body:
        return self._ask("GET", path)

    def start(self, body: Body) -> Body:
        return self._ask("POST", "/v1/runs", body)

    def run(self, run_id: str) -> Body:
        return self.get(f"/v1/runs/{run_id}")

    def decide(self, run_id: str, decision: Body) -> Body:
        return self._ask("POST", f"/v1/runs/{run_id}/decisions", {"decisions": [decision]})

    def signal(self, signal: Body) -> Body:
        return self._ask("POST", "/v1/signals", signal)

    def cancel(self, run_id: str, reason: str) -> Body:
        return self._ask("POST", f"/v1/runs/{run_id}/cancel", {"reason": reason})

    def events(
        self,
        run_id: str,
        after: int,
        *,
        until_done: bool = False,
        on_cut: Callable[[str], None],
    ) -> Iterator[Event]:
        """A run's events, each once, until the server has no more to say for now.

        A connection that breaks is made again from the last event on; `on_cut` hears of it.
        """
        patience = _Patience()
        while True:
            try:
                for event in self._events_once(run_id, after, until_done):
                    patience.renew()
                    after = event.get("seq", after)
                    yield event
                return
            except httpx2.TransportError as error:
                if not patience.pause(on_cut):
                    raise self._away(error) from error
            except ServerRefused as refusal:
                if refusal.status in _PASSING:
                    if not patience.pause(on_cut):
                        raise
                elif refusal.code == "cursor_expired":
                    after = self.get(f"/v1/runs/{run_id}/snapshot")["last_event_id"]
                    on_cut(f"some events are no longer kept one by one; going on after {after}")
                else:
                    raise

    def _events_once(self, run_id: str, after: int, until_done: bool) -> Iterator[Event]:
        with self._http.sse(
            f"/v1/runs/{run_id}/events",
            params={"follow": int(until_done)},
            headers={"Last-Event-ID": str(after)},
            timeout=_SILENCE,
        ) as source:
            if source.response.status_code == 204:
                return
            if source.response.status_code != 200:
                source.response.read()
                _body_of(source.response)
            for sent in source:
                if sent.data:
                    event: Event = json.loads(sent.data)
                    yield event

    def _ask(self, method: str, path: str, body: Body | None = None) -> Body:
        try:
            return _body_of(self._http.request(method, path, json=body))
        except httpx2.TransportError as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> ServerUnreachable:
        return ServerUnreachable(
            f"No server answers at {self._url} ({str(error) or type(error).__name__}). Start one "
            "with `holdfast serve`, or set HOLDFAST_URL."
        )


@contextmanager
def connect_client(url: str, key: str | None) -> Iterator[ApiClient]:
    """A server to ask."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with httpx2.Client(
            base_url=url, headers=headers, timeout=_TIMEOUT, mounts=_NO_PROXY
        ) as http:
            yield ApiClient(url, http)
    except (httpx2.InvalidURL, UnicodeEncodeError) as error:
        raise ServerUnreachable(
            f"HOLDFAST_URL or HOLDFAST_API_KEY can't be used: {error}."
        ) from error


@contextmanager
def ticket_client(url: str, key: str | None) -> Iterator[ApiClient]:
    """The same for a command: when the server refuses or is away, its sentence is the end."""
    try:
        with connect_client(url, key) as server:
            yield server
    except (ServerUnreachable, ServerRefused) as error:
        exit_with(str(error), ExitCode.REFUSED)


class _Patience:
    """How long a server may be away before we believe that it stays away."""

    def __init__(self) -> None:
        self._pauses = 0
        self._until = 0.0

    def renew(self) -> None:
        self._pauses = 0

    def pause(self, on_cut: Callable[[str], None]) -> bool:
        """Wait a little, and say so the first time; False when that has been done for long enough."""
        if self._pauses == 0:
            on_cut("the connection broke; trying again")
            self._until = time.monotonic() + _PATIENCE
        self._pauses += 1
        time.sleep(min(0.1 * 2**self._pauses, _LONGEST_PAUSE))
        return time.monotonic() < self._until


def _body_of(response: httpx2.Response) -> Body:
    try:
        body: Body = response.json()
    except ValueError:
        raise ServerRefused(
            response.status_code,
            str(response.status_code),
            f"What answers at {response.url} isn't a Holdfast server",
        ) from None
    if response.is_error:
        code = str(body.get("code", response.status_code))
        detail = str(body.get("detail", response.text[:200]))
        raise ServerRefused(response.status_code, code, detail)
    return body
